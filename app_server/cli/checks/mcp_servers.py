"""Whether the configured MCP servers start: each is started, listed and ended."""

import anyio

from app_server.cli.checks.machine import Machine
from app_server.config.values import ConfigError
from app_server.host.environments import Environments
from app_server.mcp.catalog.config import HttpTransport, McpSettings
from app_server.mcp.catalog.tables import broken_servers, read_mcp_settings, without_servers
from app_server.mcp.servers.server import McpServer
from app_server.mcp.servers.server_set import ServerSet
from app_server.threads.repair import Check, counted

MCP_S = 60.0
START_S = 40.0
"""For all starts, which go on at the same time."""
STOP_S = 10.0


async def check_mcp_servers(machine: Machine) -> Check:
    """Start what config.toml enables, and say of each what came of it."""
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
            McpSettings(enabled), str(machine.cwd), Environments(background), lambda *_: None
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
                _judge(server, check)
            servers.stop()
            tasks.cancel_scope.deadline = anyio.current_time() + STOP_S
        background.cancel_scope.cancel()
    return check


def _judge(server: McpServer, check: Check) -> None:
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
