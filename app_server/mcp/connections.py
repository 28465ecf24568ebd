"""The servers of one thread (or of one question): starting them, calling them, stopping them.

Servers start side by side and fail on their own: none holds up another, or the thread. A set can be
given other settings while it runs.
Source: docs/mcp.md, "Connections", "Reload".
"""

import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property, partial

import anyio
import anyio.abc
import anyio.lowlevel
import anyio.to_thread

from app_server.extension.metadata import ToolMetadata
from app_server.mcp.bounds import left_out
from app_server.mcp.catalog.config import McpSettings, ServerConfig
from app_server.mcp.elicitation import ElicitationPort
from app_server.mcp.errors import BadArguments, RequiredServersFailed, ToolDisabled, UnknownServer
from app_server.mcp.loading import load_sdk
from app_server.mcp.measurements import measured_call
from app_server.mcp.peer import Peer
from app_server.mcp.processes import Processes
from app_server.mcp.server import McpServer, StartupStep, StatusCallback
from app_server.mcp.tools.listing import Listing, is_for_model
from app_server.mcp.tools.naming import RawName, VisibleName, assign_names
from app_server.mcp_wire.errors import ProgressCallback, RequestTimedOut
from protocol.model import Json, JsonObject

MAX_RETURN_S = 60.0
"""Between two starts of a server whose environment comes and goes."""

STARTS_AT_ONCE = 8
"""Servers that are started before others of the event loop have their turn."""

SMALL_TABLE = 64
"""Tools that are sorted and named on the event loop; more of them in a worker thread."""

REFRESH_S = 10.0
"""How long a model request waits for lists of tools that changed."""


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool that can be called."""

    raw: RawName
    visible: VisibleName
    definition: JsonObject
    """As the server listed it."""
    config: ServerConfig
    parameters: JsonObject | None = None
    """The input schema as models are shown it; None: as the definition makes it."""

    @property
    def metadata(self) -> ToolMetadata:
        """What whoever registered the server says of the tool."""
        return self.config.metadata.of_tool(self.raw.tool)


@dataclass(frozen=True, eq=False)
class ToolTable:
    """All tools of a set that the model may call, at one moment. Nobody changes it."""

    tools: Sequence[Tool]
    """Sorted by raw name."""
    instructions: dict[str, str]
    """Namespace to the server's instructions, for servers that give any."""
    left_out: frozenset[str] = frozenset()
    """Raw names of servers whose tools do not fit into a model request beside the others'."""

    @cached_property
    def raw_names(self) -> frozenset[tuple[str, str]]:
        """Raw names of servers and tools."""
        return frozenset((tool.raw.server, tool.raw.tool) for tool in self.tools)

    @cached_property
    def _by_name(self) -> dict[VisibleName, Tool]:
        return {tool.visible: tool for tool in self.tools}

    def make_ready(self) -> None:
        """Have everything at hand that is asked of the table, before it is asked."""
        assert self.raw_names is not None
        assert self._by_name is not None

    def find(self, name: VisibleName) -> Tool | None:
        """Find a tool by the name the model uses."""
        return self._by_name.get(name)


class ServerSet:
    """Live servers, by raw name. `run` owns them.

    Replacing servers and using them are one class, as a use begins with the server that has the
    name at that moment.
    """

    def __init__(
        self,
        settings: McpSettings,
        cwd: str,
        processes: Processes,
        notify: StatusCallback,
        asks: ElicitationPort | None = None,
    ) -> None:
        """Make the set; nothing starts before `run`.

        `notify` gets every step of every start. Without `asks` servers cannot ask the user.
        """
        self._processes = processes
        self._notify = notify
        self._asks = asks
        self.surface = settings.surface
        self._follows_list_changes = settings.follows_list_changes
        self._grace_s = settings.startup_grace_s
        self._cwd = cwd
        self._is_held = False
        self.servers = {name: self._make(config) for name, config in settings.servers.items()}
        self._tasks: anyio.abc.TaskGroup | None = None
        self._stopping = anyio.Event()
        self._retired: set[McpServer] = set()
        self._table: tuple[object, ToolTable] | None = None

    def _make(self, config: ServerConfig) -> McpServer:
        server = McpServer(config, self._processes, self._notify, self._asks)
        if self._is_held:
            server.calls.hold()
        return server

    def hold(self) -> None:
        """Stop the clocks of all calls, until `release`."""
        self._is_held = True
        for server in self._all():
            server.calls.hold()

    def release(self) -> None:
        """Let the clocks go on."""
        self._is_held = False
        for server in self._all():
            server.calls.release()

    def _all(self) -> list[McpServer]:
        return [*self.servers.values(), *self._retired]

    async def run(self) -> None:
        """Start every server and hold the connections until `stop`."""
        try:
            async with anyio.create_task_group() as self._tasks:
                await self._launch_all(list(self.servers.values()))
                await self._stopping.wait()
        finally:
            self._tasks = None

    def _launch(self, server: McpServer) -> None:
        if self._tasks is not None and server.startable:
            self._tasks.start_soon(self._run, server)

    async def _run(self, server: McpServer) -> None:
        """Run a server; one whose environment was out of reach starts again when that is back."""
        await server.run(load_sdk, self._cwd)
        if not server.waits_for_environment:
            return
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._start_when_reachable, server, tasks.cancel_scope)
            await server.stop.wait()
            tasks.cancel_scope.cancel()

    async def _start_when_reachable(self, server: McpServer, waiting: anyio.CancelScope) -> None:
        if server.returns:
            # It could be reached, and then not when the server started.
            await anyio.sleep(min(2.0**server.returns, MAX_RETURN_S))
        await self._processes.wait_until_reachable(server.config.environment_id)
        if self.servers.get(server.config.name) is server:
            self._start_again(server, returns=server.returns + 1)
        waiting.cancel()

    async def _launch_all(self, servers: Sequence[McpServer]) -> None:
        """Start servers, some at a time: a hundred starts at once hold up everybody else."""
        for number, server in enumerate(servers, 1):
            self._launch(server)
            if number % STARTS_AT_ONCE == 0:
                await anyio.lowlevel.checkpoint()

    def stop(self) -> None:
        """End all connections; `run` returns when they have ended."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        for server in (*self.servers.values(), *self._retired):
            server.stop.set()
            server.cancel_start()
        for server in self.servers.values():
            server.leave()

    def reconcile(self, settings: McpSettings) -> None:
        """Make the set what these settings ask for, after a reload; never waits.

        Servers that run or start with equal values go on, and say so. Others are stopped, once
        their calls
        have ended, or started; dead and failed ones are started again. A set that stops stays as
        it is.
        """
        self._take_over(settings, reload=True)

    def update(self, settings: McpSettings) -> None:
        """Do the same between two model requests: servers with equal settings stay as they are."""
        self._take_over(settings, reload=False)

    def _take_over(self, settings: McpSettings, *, reload: bool) -> None:
        if self._stopping.is_set():
            return
        before, self.servers = self.servers, {}
        self._grace_s = settings.startup_grace_s
        self.surface = settings.surface
        self._follows_list_changes = settings.follows_list_changes
        fresh = []
        for name, config in settings.servers.items():
            server = before.get(name)
            is_same = server is not None and server.config == config
            is_told = reload and not (config.is_registered and server is not None and server.lives)
            if server is not None and is_same and not is_told:
                # Of what was registered at run time a reload tells nothing new.
                del before[name]
            elif server is not None and config.enabled and server.fits(config, self._cwd):
                del before[name]
                server.reuse(config, tell=reload)
            else:
                server = self._replace(server, config)
                fresh.append(server)
            self.servers[name] = server
        for server in before.values():
            self._retire(server)
        if self._tasks is not None:
            self._tasks.start_soon(self._launch_all, fresh)

    def _replace(self, old: McpServer | None, config: ServerConfig) -> McpServer:
        if old is None or not (old.config.is_registered and config.is_registered):
            return self._make(config)
        if config.known is not None and old.config.known is not None:
            # Nothing starts: it goes on by another way, and says so if it has other tools.
            is_same = config.known == old.config.known
            notify = _nobody if is_same else partial(_without_start, self._notify)
            return McpServer(config, self._processes, notify, self._asks)
        server = self._make(config)
        # Until it is ready the model is shown what there was, so that no turn is without.
        server.stand_in(old.listing)
        return server

    def _retire(self, server: McpServer) -> None:
        server.leave()
        server.cancel_start()
        if not server.is_in_use:
            server.stop.set()
        elif self._tasks is not None:
            self._retired.add(server)
            self._tasks.start_soon(self._see_off, server)

    async def _see_off(self, server: McpServer) -> None:
        await server.retire()
        self._retired.discard(server)

    def revive(self, *names: str) -> None:
        """Start processes again that have died, all or those named; never waits.

        One that then does not become ready is left as it is. The tools that were listed before
        stay until the new list is there.
        """
        for name in names or list(self.servers):
            dead = self.servers.get(name)
            if dead is not None and dead.may_be_revived:
                self._start_again(dead)

    def signed_in(self, name: str) -> None:
        """Start a server again that waits for a sign-in; never waits."""
        server = self.servers.get(name)
        if server is not None and server.status == "authenticationRequired":
            self._start_again(server)

    def _start_again(self, ended: McpServer, returns: int = 0) -> None:
        if self._stopping.is_set():
            return
        server = self.servers[ended.config.name] = self._make(ended.config)
        ended.leave()
        server.listing = ended.listing
        server.returns = returns
        self._launch(server)

    def cancel_starting(self) -> None:
        """Give up the starts that are not decided yet."""
        for server in self.servers.values():
            server.cancel_start()

    async def wait_for_required(self) -> None:
        """Wait until the required servers have started.

        Raises:
            RequiredServersFailed: some did not.
        """
        names = [n for n, s in self.servers.items() if s.config.required and s.startable]
        for name in names:
            while (server := self.servers.get(name)) and not server.settled.is_set():
                await server.settled.wait()
        required = [self.servers[name] for name in names if name in self.servers]
        causes = [f"{s.config.name}: {s.failure}" for s in required if s.failure is not None]
        if causes:
            raise RequiredServersFailed(
                f"required MCP servers failed to initialize: {'; '.join(causes)}"
            )

    def grace_ends_at(self) -> float:
        """Return when a grace that begins now is over, on the clock of anyio."""
        return math.inf if self._grace_s is None else anyio.current_time() + self._grace_s

    async def wait_for_grace(self, ends_at: float | None = None) -> None:
        """Wait until every start is decided, but no longer than the configured grace.

        `ends_at` is the end of one that has begun. No start is waited for twice.
        """
        if not self._starting():
            return
        with anyio.CancelScope(deadline=self.grace_ends_at() if ends_at is None else ends_at):
            while starting := self._starting():
                await starting[0].settled.wait()
        for server in self._starting():
            server.waited_for = True

    async def refresh_lists(self) -> None:
        """List tools again where servers said that they changed, if that is wanted at all."""
        if not self._follows_list_changes:
            return
        changed = [server for server in self.servers.values() if server.list_is_old]
        if not changed:
            return
        with anyio.move_on_after(REFRESH_S):
            async with anyio.create_task_group() as tasks:
                for server in changed:
                    tasks.start_soon(server.refresh_list)

    def _starting(self) -> list[McpServer]:
        return [s for s in self.servers.values() if not (s.waited_for or s.settled.is_set())]

    def _listed(self) -> list[tuple[ServerConfig, Listing]]:
        return [
            (server.config, server.listing)
            for server in self.servers.values()
            if server.listing is not None and server.config.shows_tools_on(self.surface)
        ]

    @property
    def table(self) -> ToolTable | None:
        """What was made last for `tools`; what there is now may be more, or less."""
        return None if self._table is None else self._table[1]

    def tools(self) -> ToolTable:
        """Return what the model sees of servers that have started; tools of a dead one stay."""
        listed = self._listed()
        key = self.surface, listed
        if self._table is None or self._table[0] != key:
            self._table = key, _table_of(*key)
        return self._table[1]

    async def prepare_tools(self) -> ToolTable:
        """Return the same as `tools`, made in a worker thread if there are many."""
        listed = self._listed()
        key = self.surface, listed
        is_small = sum(len(listing.tools) for _, listing in listed) <= SMALL_TABLE
        if is_small or (self._table is not None and self._table[0] == key):
            return self.tools()
        table = await anyio.to_thread.run_sync(_prepared_table_of, *key)
        self._table = key, table
        return table

    def instance_of(self, environment_id: str) -> str | None:
        """Return an id of what an environment is now; None if it is unknown."""
        return self._processes.instance_of(environment_id)

    def server(self, name: str) -> McpServer:
        """Find a server.

        Raises:
            UnknownServer: there is none of this name.
        """
        server = self.servers.get(name)
        if server is None:
            raise UnknownServer(name)
        return server

    async def decided(self, name: str) -> McpServer:
        """Find a server once its start, or that of what replaced it, has been decided.

        Raises:
            UnknownServer: there is none of this name.
        """
        while not (server := self.server(name)).settled.is_set():
            await server.settled.wait()
        return server

    @asynccontextmanager
    async def lease(self, name: str) -> AsyncIterator[Peer]:
        """Hold a server's connection; a server that is replaced keeps it until the end.

        Raises:
            McpError: nobody of this name, disabled, not started, ended.
        """
        server = await self.decided(name)
        async with server.lease() as peer:
            yield peer

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
        config = self.server(raw.server).config
        if not config.allows(raw.tool):
            raise ToolDisabled(raw.server, raw.tool)
        server = await self.decided(raw.server)
        async with server.lease() as peer:
            if arguments is not None and not isinstance(arguments, dict):
                raise BadArguments("MCP tool arguments must be a JSON object")
            params: JsonObject = {"name": raw.tool, "_meta": meta}
            if arguments is not None:
                params["arguments"] = arguments
            running = server.calls.run(caller, config.tool_timeout_s)
            with measured_call(config, raw.tool), running as call, call.scope:
                return await peer.request("tools/call", params, on_progress=on_progress)
        raise RequestTimedOut("tools/call", config.tool_timeout_s)

    async def read_resource(self, name: str, uri: str, meta: JsonObject | None) -> JsonObject:
        """Read one resource and return the result as the server sent it.

        Raises:
            McpError: see `call_tool`.
        """
        timeout_s = self.server(name).config.tool_timeout_s
        params: JsonObject = {"uri": uri} if meta is None else {"uri": uri, "_meta": meta}
        async with self.lease(name) as peer:
            return await peer.request("resources/read", params, timeout_s=timeout_s)


def _sizes(servers: Sequence[tuple[ServerConfig, Listing]]) -> dict[str, int]:
    """Return what the tools of each server take of a model request, in bytes."""
    return {
        config.name: sum(
            listing.sizes.get(name, 0)
            for name, definition in listing.tools.items()
            if config.allows(name) and is_for_model(definition)
        )
        for config, listing in servers
    }


def _nobody(name: str, step: StartupStep, error: str | None) -> None:
    """Announce nothing: the start changes nothing for anybody."""


def _without_start(notify: StatusCallback, name: str, step: StartupStep, error: str | None) -> None:
    if step != "starting":
        notify(name, step, error)


def _prepared_table_of(surface: str, listed: Sequence[tuple[ServerConfig, Listing]]) -> ToolTable:
    table = _table_of(surface, listed)
    table.make_ready()
    return table


def _table_of(surface: str, listed: Sequence[tuple[ServerConfig, Listing]]) -> ToolTable:
    too_large = left_out(_sizes(listed)) if surface == "direct" else frozenset()
    shown = {
        RawName(config.name, name): (config, listing, definition)
        for config, listing in listed
        if config.name not in too_large
        for name, definition in listing.tools.items()
        if config.allows(name) and is_for_model(definition)
    }
    names = assign_names(shown)
    tools = [
        Tool(raw, names[raw], definition, config, listing.parameters.get(raw.tool))
        for raw, (config, listing, definition) in sorted(
            shown.items(), key=lambda entry: (entry[0].server, entry[0].tool)
        )
    ]
    instructions = {
        names[raw].namespace: listing.instructions
        for raw, (_, listing, _) in shown.items()
        if listing.instructions
    }
    return ToolTable(tools, instructions, too_large)
