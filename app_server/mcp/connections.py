"""The servers of one thread (or of one question): starting them, calling them, stopping them.

Servers start side by side and fail on their own: none holds up another, or the thread.
Source: docs/mcp.md, "Connections".
"""

from collections.abc import Sequence
from dataclasses import dataclass

import anyio

from app_server.mcp.config import McpSettings, ServerConfig
from app_server.mcp.elicitation import ElicitationPort
from app_server.mcp.errors import (
    BadArguments,
    RequestTimedOut,
    RequiredServersFailed,
    ToolDisabled,
    UnknownServer,
)
from app_server.mcp.loading import load_connector
from app_server.mcp.naming import RawName, VisibleName, assign_names
from app_server.mcp.peer import ProgressCallback
from app_server.mcp.server import McpServer, StatusCallback
from protocol.model import Json, JsonObject


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool that can be called."""

    raw: RawName
    visible: VisibleName
    definition: JsonObject
    """As the server listed it."""
    config: ServerConfig


@dataclass(frozen=True, slots=True)
class ToolTable:
    """All tools of a set at one moment."""

    tools: Sequence[Tool]
    """Sorted by raw name."""
    instructions: dict[str, str]
    """Namespace to the server's instructions, for servers that give any."""

    def find(self, name: VisibleName) -> Tool | None:
        """Find a tool by the name the model uses."""
        return next((tool for tool in self.tools if tool.visible == name), None)


class ServerSet:
    """Live servers, by raw name. `run` owns them."""

    def __init__(
        self,
        settings: McpSettings,
        cwd: str,
        told: StatusCallback,
        asks: ElicitationPort | None = None,
    ) -> None:
        """Make the set; nothing starts before `run`.

        `told` hears of every step of every start. Without `asks` servers cannot ask the user.
        """
        self.servers = {
            name: McpServer(config, told, asks) for name, config in settings.servers.items()
        }
        self.surface = settings.surface
        self._grace_s = settings.startup_grace_s
        self._cwd = cwd
        self._table: tuple[tuple[str, ...], ToolTable] | None = None

    async def run(self) -> None:
        """Start every server and hold the connections until `stop`."""
        async with anyio.create_task_group() as tasks:
            for server in self.servers.values():
                if server.config.startable:
                    tasks.start_soon(server.run, load_connector, self._cwd)

    def stop(self) -> None:
        """End all connections; `run` returns when they have ended."""
        for server in self.servers.values():
            server.stop.set()
            server.cancel_start()

    def cancel_starting(self) -> None:
        """Give up the starts that are not decided yet."""
        for server in self.servers.values():
            server.cancel_start()

    async def wait_for_required(self) -> None:
        """Wait until the required servers have started.

        Raises:
            RequiredServersFailed: some did not.
        """
        required = [s for s in self.servers.values() if s.config.required and s.config.startable]
        for server in required:
            await server.settled.wait()
        causes = [f"{s.config.name}: {s.failure}" for s in required if s.failure is not None]
        if causes:
            raise RequiredServersFailed(
                f"required MCP servers failed to initialize: {'; '.join(causes)}"
            )

    async def wait_for_grace(self) -> None:
        """Wait until every start is decided, but no longer than the configured grace."""
        with anyio.move_on_after(self._grace_s):
            for server in self.servers.values():
                await server.settled.wait()

    def tools(self) -> ToolTable:
        """Return what the model sees of servers that have started; tools of a dead one stay."""
        listed = [
            server
            for server in self.servers.values()
            if server.has_started and server.config.shows_tools_on(self.surface)
        ]
        key = tuple(server.config.name for server in listed)
        if self._table is None or self._table[0] != key:
            self._table = key, _table_of(listed)
        return self._table[1]

    def server(self, name: str) -> McpServer:
        """Find a server.

        Raises:
            UnknownServer: there is none of this name.
        """
        server = self.servers.get(name)
        if server is None:
            raise UnknownServer(name)
        return server

    async def call_tool(
        self,
        raw: RawName,
        arguments: Json,
        meta: JsonObject,
        on_progress: ProgressCallback | None = None,
        caller: str | None = None,
    ) -> JsonObject:
        """Call a tool by its raw name and return the result as the server sent it.

        Cancelling tells the server. The timeout counts the time in which no question of the
        server's is open; such a question names the `caller`.

        Raises:
            McpError: nobody of this name, not started, filtered out, bad arguments, timed out,
            ended,
                or a JSON-RPC error of the server's (PeerError).
        """
        server = self.server(raw.server)
        if not server.config.allows(raw.tool):
            raise ToolDisabled(raw.server, raw.tool)
        peer = await server.connected_peer()
        if arguments is not None and not isinstance(arguments, dict):
            raise BadArguments("MCP tool arguments must be a JSON object")
        params: JsonObject = {"name": raw.tool, "_meta": meta}
        if arguments is not None:
            params["arguments"] = arguments
        with server.calls.run(caller, server.config.tool_timeout_s) as call, call.scope:
            return await peer.request("tools/call", params, on_progress=on_progress)
        raise RequestTimedOut("tools/call", server.config.tool_timeout_s)

    async def read_resource(self, name: str, uri: str, meta: JsonObject | None) -> JsonObject:
        """Read one resource and return the result as the server sent it.

        Raises:
            McpError: see `call_tool`.
        """
        server = self.server(name)
        peer = await server.connected_peer()
        params: JsonObject = {"uri": uri} if meta is None else {"uri": uri, "_meta": meta}
        return await peer.request("resources/read", params, timeout_s=server.config.tool_timeout_s)


def _table_of(servers: Sequence[McpServer]) -> ToolTable:
    listed = {
        RawName(server.config.name, name): (server, definition)
        for server in servers
        for name, definition in server.listing.tools.items()
        if server.config.allows(name)
    }
    names = assign_names(listed)
    tools = [
        Tool(raw, names[raw], definition, server.config)
        for raw, (server, definition) in sorted(listed.items(), key=lambda entry: entry[0])
    ]
    instructions = {
        names[raw].namespace: server.listing.instructions
        for raw, (server, _) in listed.items()
        if server.listing.instructions
    }
    return ToolTable(tools, instructions)
