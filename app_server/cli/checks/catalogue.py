"""Checks of `app-server doctor`: how one is run within its time, and the table of all of them.

A check that blocks has a thread of its own, which is not waited for beyond its bound: a folder of a
network that does not answer holds up neither the others nor the end of the program. Here are those
of the files in a home, of the database of threads, and of the services that a server speaks to;
those of the machine are in machine.py.
"""

import asyncio
import logging
import os
import stat
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

import anyio
import anyio.to_thread

from app_server.accounts.account_settings import AccountSettings, read_account_settings
from app_server.accounts.accounts import Accounts
from app_server.accounts.store import FILE_NAME as ACCOUNT_FILE
from app_server.cli.checks.machine import (
    Machine,
    check_clock,
    check_disk,
    check_keyring,
    check_limits,
    check_ports,
    check_sandbox,
)
from app_server.config.effective import (
    OFFLINE,
    ConfigSources,
    default_provider_id,
    read_start_settings,
)
from app_server.config.key_check import (
    keys_without_effect,
    unknown_in_file,
    unknown_in_overrides,
)
from app_server.config.requirements import read_requirements, requirements_of
from app_server.config.store_url import StoreUrl, chosen_store
from app_server.config.values import Config, ConfigError
from app_server.handlers.server.config_check import wrong_values
from app_server.host.environments import Environments
from app_server.host.sandbox.probe import PROBE_S
from app_server.mcp.catalog.config import HttpTransport, McpSettings
from app_server.mcp.catalog.tables import broken_servers, read_mcp_settings, without_servers
from app_server.mcp.oauth.credentials import FILE_NAME as MCP_FILE
from app_server.mcp.servers.pool import ServerPool
from app_server.mcp.servers.server import McpServer
from app_server.mcp.servers.server_set import ServerSet
from app_server.models.catalogue.providers import chosen_provider
from app_server.models.client import ModelClient
from app_server.models.interface import ModelFailure, Provider
from app_server.runtime.loader import Lazy, LoadFailed, load
from app_server.threads.checks import Check, Status, counted
from app_server.threads.opening.checks import store_checks
from app_server.threads.opening.stores import NO_PSYCOPG


def check_config(machine: Machine) -> Check:
    """Read the files as a server does."""
    profile = machine.profile_file
    check = Check("config", message=str(machine.config_file))
    if profile is not None:
        check.message += f" and {profile.name}"
    try:
        demanded = read_requirements(machine.requirements)
        for warning in requirements_of(Config({}, requirements=demanded)).warnings:
            check.add("warning", warning)
            check.advise("ask whoever administers this machine")
    except ConfigError as exc:
        check.add("error", str(exc).strip())
        check.advise("nothing starts until the administrator of this machine corrects that file")
    try:
        files = machine.read_files()
    except ConfigError as exc:
        check.add("error", str(exc).strip())
        check.advise("correct the file at that place; no thread starts before")
        return check
    if profile is not None and not profile.exists():
        check.add("warning", f"{profile} is not there, so the profile changes nothing")
        check.advise(f"make that file, or leave out --profile {machine.profile}")
    unknown = [text for source in files.sources for text in unknown_in_file(source)]
    unknown += unknown_in_overrides(machine.overrides, "-c/--config")
    for text in unknown:
        check.add("warning", text)
    if unknown:
        check.advise("correct or remove these keys: nothing reads them (docs/config.md)")
    for path in keys_without_effect(files.document):
        check.add("ok", f"{'.'.join(path)} has an effect in Codex, and none here")
    _check_values(files.override(machine.overrides), check)
    return check


def _check_values(config: Config, check: Check) -> None:
    found = wrong_values(config)
    for error, instead in found:
        check.add("error", f"{str(error).strip()}; {instead}")
    if found:
        check.advise("correct each value at its place")
        return
    try:
        chosen_provider(config)
    except ConfigError as exc:
        check.add("error", str(exc).strip())
        table = f"[model_providers.{default_provider_id(config)}]"
        check.advise(f"add a table {table} to config.toml, or choose another one")


SECRET_FILES = (ACCOUNT_FILE, MCP_FILE)
"""Files with credentials, readable by their owner alone."""
SETTINGS_FILES = ("config.toml", "hooks.json", "AGENTS.md")
"""Files that direct the server, writable by their owner alone."""
SETTINGS_FOLDERS = ("rules", "skills", "plugins")


def check_modes(machine: Machine) -> Check:
    """Check owners and modes; folders of threads are part of the check of the home."""
    check = Check(
        "modes", message="files with credentials, and files with settings and instructions"
    )
    if (problem := _unreachable(machine.home)) is not None:
        check.add("error", f"{machine.home}: {problem}")
        check.advise(f"let {machine.home} be a folder that this user can use")
        return check
    for name in SECRET_FILES:
        _look(machine.home / name, _SECRET, check)
    for name in (*SETTINGS_FILES, *SETTINGS_FOLDERS):
        _look(machine.home / name, _SETTINGS, check)
    if (profile := machine.profile_file) is not None:
        _look(profile, _SETTINGS, check)
    return check


def _unreachable(home: Path) -> str | None:
    """Return why a home cannot be read; None if it can, or does not exist."""
    try:
        # The path of something in it: `Path` leaves the point out.
        os.stat(f"{home}/.")  # noqa: PTH116
    except FileNotFoundError:
        return None
    except OSError as exc:
        return exc.strerror
    return None


@dataclass(frozen=True, slots=True)
class _Rule:
    forbidden: int
    change: str
    verb: str
    status: Status


_SECRET = _Rule(stat.S_IRWXG | stat.S_IRWXO, "go=", "use", "error")
_SETTINGS = _Rule(stat.S_IWGRP | stat.S_IWOTH, "go-w", "change", "warning")


def _look(path: Path, rule: _Rule, check: Check) -> None:
    try:
        facts = path.stat()
    except FileNotFoundError:
        return
    except OSError as exc:
        check.add("error", f"{path}: {exc.strerror}")
        check.advise(f"let this user reach {path}")
        return
    if facts.st_uid not in (os.geteuid(), 0):
        check.add("error", f"{path} belongs to another user (number {facts.st_uid})")
        check.advise(f"chown {os.geteuid()} {path}")
    if facts.st_mode & rule.forbidden:
        mode = stat.S_IMODE(facts.st_mode)
        check.add(rule.status, f"others can {rule.verb} {path} (mode {mode:04o})")
        check.advise(f"chmod {rule.change} {path}")


Look: TypeAlias = Callable[[StoreUrl], Check]


async def check_store(machine: Machine) -> Check:
    """Find the database that a server would use, and look at it as a server does."""
    check = Check("database")
    sources = ConfigSources(
        machine.home, machine.cwd, machine.requirements, machine.overrides, machine.profile
    )
    try:
        chosen = chosen_store(None, machine.overrides, os.environ)
        store = (await read_start_settings(sources, chosen)).store
    except ConfigError as exc:
        check.add("error", str(exc).strip())
        check.advise("correct that setting; no server starts before")
        return check
    if store is None:
        check.message = "threads are kept in files"
        return check
    try:
        look = await load(_look_at_database)
    except LoadFailed as exc:
        check.message = str(store)
        text, _, todo = NO_PSYCOPG.partition("; ")
        if not isinstance(exc.__cause__, ModuleNotFoundError):
            text, todo = str(exc), "install this version again"
        check.add("error", text)
        check.advise(todo)
        return check
    return await anyio.to_thread.run_sync(look, store)


def _look_at_database() -> Look:
    from app_server.threads.opening.database import look

    return look


CLOSE_S = 2.0

UNAUTHORIZED = (401, 403)
WITHOUT_LIST = (404, 405, 501)
"""Answers of a provider that is there and serves no list of models."""
FIRST_SERVER_ERROR = 500


async def check_model(machine: Machine) -> Check:
    """Ask the provider for its models, as the server does; no model is used."""
    check = Check("model")
    as_written = machine.configuration()

    async def account_settings() -> AccountSettings:
        return read_account_settings(await as_written.read())

    accounts = Accounts(machine.home, account_settings, lambda: round(machine.now_s() * 1000))

    async def is_signed_in() -> bool:
        return (await accounts.look()).credentials is not None

    try:
        config = await machine.configuration(is_signed_in).read()
        provider = chosen_provider(config)
    except ConfigError as exc:
        check.add("error", f"unknown: {str(exc).strip()}")
        check.advise("correct that setting, then look again")
        return check
    if provider.id == OFFLINE:
        check.message = "the offline model answers: no provider is configured, nobody is signed in"
        return check
    check.message = f"provider `{provider.id}`"
    client = ModelClient(Lazy("the offline model", _no_offline_model), accounts)
    try:
        body = await client.list_models(provider)
    except ModelFailure as exc:
        _judge_model(exc, provider, check)
    else:
        check.message += f": answers ({len(body)} bytes of models)"
    finally:
        with anyio.move_on_after(CLOSE_S, shield=True):
            await client.aclose()
    return check


def _judge_model(failure: ModelFailure, provider: Provider, check: Check) -> None:
    status = failure.http_status
    variable = provider.env_key or provider.spare_env_key
    key = f"the key in {variable}" if variable else "the credentials"
    if status in WITHOUT_LIST:
        check.message += ": answers, and has no list of models"
        return
    check.add("error", failure.message)
    if status in UNAUTHORIZED:
        check.advise(f"the provider refuses {key}: renew it, or sign in again")
    elif failure.message.startswith("Missing environment variable"):
        check.advise(f"set {variable} to the key of this provider before the server is started")
    elif status is not None and status >= FIRST_SERVER_ERROR:
        check.advise("the provider has trouble of its own: try again later")
    elif status is not None:
        check.advise(f"look at base_url of [model_providers.{provider.id}] in config.toml")
    else:
        check.advise(
            f"look at base_url of [model_providers.{provider.id}] in config.toml, at the network "
            "and at the proxy (HTTPS_PROXY, NO_PROXY)"
        )


async def _no_offline_model() -> str:
    raise AssertionError


MCP_S = 60.0
START_S = 40.0
"""For all starts, which go on at the same time."""
STOP_S = 10.0


async def check_mcp_servers(machine: Machine) -> Check:
    """Start the servers that config.toml enables, and report each."""
    check = Check("mcp")
    try:
        config = await machine.configuration().read()
        broken = broken_servers(config)
        settings = read_mcp_settings(without_servers(config, broken))
    except ConfigError as exc:
        check.add("error", f"unknown: {str(exc).strip()}")
        check.advise("correct that setting, then look again")
        return check
    for name, problem in broken.items():
        check.add("error", f"{name}: {str(problem).strip()}")
        check.advise(f"correct [mcp_servers.{name}]")
    enabled = {name: config for name, config in settings.servers.items() if config.enabled}
    off = len(settings.servers) - len(enabled)
    if not enabled:
        check.message = f"no MCP server is enabled, {off} {'is' if off == 1 else 'are'} disabled"
        return check
    async with anyio.create_task_group() as background:
        servers = ServerSet(
            McpSettings(enabled),
            str(machine.cwd),
            ServerPool(Environments(background)),
            lambda *_: None,
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(servers.run)
            with anyio.move_on_after(START_S):
                for name in enabled:
                    await servers.decided(name)
            found = [servers.server(name) for name in enabled]
            working = sum(server.status == "connected" for server in found)
            verb = "is" if off == 1 else "are"
            check.message = f"{working} of {len(found)} start, {off} {verb} disabled"
            for server in found:
                _judge_mcp_server(server, check)
            servers.stop()
            tasks.cancel_scope.deadline = anyio.current_time() + STOP_S
        background.cancel_scope.cancel()
    return check


def _judge_mcp_server(server: McpServer, check: Check) -> None:
    name = server.config.name
    table = f"[mcp_servers.{name}]"
    match server.status:
        case "connected":
            count = len(server.listing.tools) if server.listing is not None else 0
            check.add("ok", f"{name}: {counted(count, 'tool')}")
            return
        case "authenticationRequired":
            todo = f"app-server mcp login {name}"
        case "starting":
            todo = f"raise startup_timeout_sec of {table}, or look why it takes so long"
        case "disabled":
            todo = f"its environment is not on this machine: see environment_id of {table}"
        case _:
            is_url = isinstance(server.config.transport, HttpTransport)
            todo = (
                f"look at url of {table}, and whether that server runs"
                if is_url
                else f"run the command of {table} by hand, and look at what it says"
            )
    text = str(server.failure) if server.failure is not None else server.status
    check.add("error" if server.config.required else "warning", f"{name}: {text}")
    check.advise(todo)


logger = logging.getLogger(__name__)

BOUND_S = 20.0

Findings: TypeAlias = Check | Sequence[Check]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSpec:
    """One row of the table of checks."""

    name: str
    blocking: Callable[[Machine], Findings] | None = None
    waiting: Callable[[Machine], Awaitable[Findings]] | None = None
    """One of both: a function that blocks, or one that waits on the event loop."""
    bound_s: float = BOUND_S
    when_overdue: str = "look at what it waits for, and run doctor again"
    """Advice when it does not end in time."""


async def run_checks(specs: Sequence[CheckSpec], machine: Machine) -> list[Check]:
    """Run all checks at the same time; the results are in the order of the table."""
    results: list[Sequence[Check]] = [() for _ in specs]

    async def run(position: int, spec: CheckSpec) -> None:
        found = await _run_one(spec, machine)
        results[position] = [found] if isinstance(found, Check) else found

    async with anyio.create_task_group() as tasks:
        for position, spec in enumerate(specs):
            tasks.start_soon(run, position, spec)
    return [check for result in results for check in result]


async def _run_one(spec: CheckSpec, machine: Machine) -> Findings:
    try:
        with anyio.fail_after(spec.bound_s):
            if spec.waiting is not None:
                return await spec.waiting(machine)
            assert spec.blocking is not None, f"{spec.name} has no function"
            return await _in_own_thread(partial(spec.blocking, machine))
    except TimeoutError:
        overdue = Check(spec.name, todo=spec.when_overdue)
        overdue.add("error", f"it did not end within {spec.bound_s:g} s")
        return overdue
    except Exception as exc:
        # The others are wanted all the more.
        failed = Check(spec.name)
        if isinstance(exc, OSError) and exc.filename is not None:
            failed.add("error", f"{exc.filename}: {exc.strerror}")
            failed.todo = "let this user look at it"
        else:
            logger.exception("check %s failed", spec.name)
            failed.add("error", f"the check itself failed: {type(exc).__name__}")
            failed.todo = "report this, with the output of app-server doctor --json"
        return failed


async def _in_own_thread(work: Callable[[], Findings]) -> Findings:
    future: Future[Findings] = Future()
    # Whoever waits may give up; the result then comes to nobody.
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(work())
        except Exception as exc:  # noqa: BLE001
            future.set_exception(exc)

    threading.Thread(target=run, name="check", daemon=True).start()
    return await asyncio.wrap_future(future)


THREADS_S = 3600.0
"""For reading every log of a home, at some hundred MiB a second."""

CHECKS: Sequence[CheckSpec] = (
    CheckSpec(
        name="threads",
        blocking=lambda machine: store_checks(machine.home).threads(machine.progress),
        bound_s=THREADS_S,
    ),
    CheckSpec(
        name="database",
        waiting=check_store,
        when_overdue="the database does not answer: look at it, and at the network",
    ),
    CheckSpec(name="filing", blocking=lambda machine: store_checks(machine.home).filing()),
    CheckSpec(name="signals", blocking=lambda machine: store_checks(machine.home).signals()),
    CheckSpec(
        name="notifications",
        blocking=lambda machine: store_checks(machine.home).notifications(),
    ),
    CheckSpec(
        name="disk",
        blocking=check_disk,
        when_overdue="the disk does not answer: look at the mount that the home is on",
    ),
    CheckSpec(name="modes", blocking=check_modes),
    CheckSpec(name="config", blocking=check_config),
    CheckSpec(
        name="keyring",
        blocking=check_keyring,
        when_overdue="unlock the keyring of the desktop session, or keep credentials in files: "
        'cli_auth_credentials_store = "file", mcp_oauth_credentials_store = "file"',
    ),
    CheckSpec(
        name="model",
        waiting=check_model,
        when_overdue="the model provider does not answer: look at the network and the proxy",
    ),
    CheckSpec(
        name="mcp",
        waiting=check_mcp_servers,
        bound_s=MCP_S,
        when_overdue="some MCP server neither starts nor fails: run its command by hand",
    ),
    CheckSpec(name="sandbox", blocking=check_sandbox, bound_s=PROBE_S + 5),
    CheckSpec(name="ports", blocking=check_ports),
    CheckSpec(name="clock", blocking=check_clock),
    CheckSpec(name="limits", blocking=check_limits),
)
"""`threads` gives six: home, logs, locks, index, history, codex."""
