"""Checks of the files in a home (config.toml, access rights), and of the database of threads."""

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import anyio
import anyio.to_thread

from app_server.accounts.store import FILE_NAME as ACCOUNT_FILE
from app_server.cli.checks.machine import Machine
from app_server.config.effective import ConfigSources, default_provider_id, read_start_settings
from app_server.config.key_check import (
    keys_without_effect,
    unknown_in_file,
    unknown_in_overrides,
)
from app_server.config.requirements import read_requirements, requirements_of
from app_server.config.store_url import StoreUrl, chosen_store
from app_server.config.values import Config, ConfigError
from app_server.handlers.server.config_check import wrong_values
from app_server.mcp.oauth.credentials import FILE_NAME as MCP_FILE
from app_server.models.catalogue.providers import chosen_provider
from app_server.runtime.loader import LoadFailed, load
from app_server.threads.checks import Check, Status
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
