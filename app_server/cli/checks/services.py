"""Checks of the programs that a server speaks to: the model provider and MCP servers."""

import anyio

from app_server.accounts.account_settings import AccountSettings, read_account_settings
from app_server.accounts.accounts import Accounts
from app_server.cli.checks.machine import Machine
from app_server.config.effective import OFFLINE
from app_server.config.values import ConfigError
from app_server.host.environments import Environments
from app_server.mcp.catalog.config import HttpTransport, McpSettings
from app_server.mcp.catalog.tables import broken_servers, read_mcp_settings, without_servers
from app_server.mcp.servers.pool import ServerPool
from app_server.mcp.servers.server import McpServer
from app_server.mcp.servers.server_set import ServerSet
from app_server.models.catalogue.providers import chosen_provider
from app_server.models.client import ModelClient
from app_server.models.interface import ModelFailure, Provider
from app_server.runtime.loader import Lazy
from app_server.threads.checks import Check, counted

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
