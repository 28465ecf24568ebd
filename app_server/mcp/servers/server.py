"""One configured server: its status, its connection, its last listing.

Clients are sent each `StartupStep` once: `starting`, then exactly one of `ready`, `failed`,
`cancelled`. `Status` is what a row of `mcpServerStatus/list` shows. A server that dies later keeps
its listing. One that is started again is a new McpServer; the old one is retired, and keeps its
connection for the calls that run on it.
Source: docs/mcp.md, "Connections".
"""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal, TypeAlias

import anyio
import anyio.abc

from app_server.mcp.catalog.config import (
    DEFAULT_CALL_S,
    VALID_NAME,
    Ingredients,
    ServerConfig,
    StdioTransport,
    ingredients,
)
from app_server.mcp.connection import (
    ConnectionOwner,
    McpConnection,
    OnDemandConnection,
)
from app_server.mcp.elicitation import (
    CANCELLED,
    ElicitationPort,
    RunningCalls,
    ServerQuestion,
    check_size,
)
from app_server.mcp.errors import (
    ClientUnavailable,
    NotLoggedIn,
    StartupFailed,
    UnknownServer,
    text_for_people,
)
from app_server.mcp.loading import hold_connection
from app_server.mcp.processes import Processes
from app_server.mcp.tools.listing import Listing
from app_server.mcp_wire.errors import TransportClosed
from app_server.runtime.clock import SystemClock
from app_server.runtime.loader import LoadFailed
from protocol.model import JsonObject

logger = logging.getLogger(__name__)

Status: TypeAlias = Literal[
    "notStarted",
    "starting",
    "connected",
    "authenticationRequired",
    "failed",
    "cancelled",
    "disabled",
]

StartupStep: TypeAlias = Literal["starting", "ready", "failed", "cancelled"]

ServerNews: TypeAlias = StartupStep | Literal["toolsChanged"]

StatusCallback: TypeAlias = Callable[[str, ServerNews, str | None], None]
"""Called with the raw name, what is new, and the text of a failure."""

RETRY_WAITS_S = (0.3, 1.0)
"""Before the second and the third try of a server that was out of reach."""

MIN_LEASE_S = DEFAULT_CALL_S
"""Calls may run at least this long on the connection of a server that was replaced."""


@dataclass(slots=True)
class ServerRecord:
    """What became of a server so far; a server that takes the place of one goes on with its."""

    started_at_ms: int | None = None
    """When it became ready last, in Unix milliseconds."""
    restarts: int = 0
    """Starts after the first one, whatever ended the server."""
    last_error: str | None = None
    """Why it did not start, or ended, last."""
    last_fault: str | None = None
    """What it did last against MCP, as a text that begins with a verb; it went on."""
    shared_by: int = 1
    """Threads that use the process or the session, this one included."""


class McpServer:
    """One server of one set; also the owner of its connection."""

    def __init__(
        self,
        config: ServerConfig,
        processes: Processes,
        notify: StatusCallback,
        asks: ElicitationPort | None = None,
    ) -> None:
        self.config = config
        self._processes = processes
        self.startable = config.enabled and processes.has(config.environment_id)
        """Whether a start may be tried."""
        self._status: Status = "notStarted" if self.startable else "disabled"
        self.listing: Listing | None = config.known
        """The listing from its registration or its last start; kept while it is started again."""
        self.failure: StartupFailed | None = None
        self.settled = anyio.Event()
        """Set once a start has been decided, or will not be tried."""
        self.stop = anyio.Event()
        self.calls = RunningCalls()
        self.can_elicit = asks is not None
        self.protocol_version = None if config.known is None else config.known.protocol_version
        """Of MCP, as its connection agreed on it last; None before the first."""
        self._asks = asks
        self.record = ServerRecord()
        self.returns = 0
        """Restarts in a row after its environment could be reached again."""
        self.waited_for = False
        """Whether a turn has given the start its grace."""
        self._notify = notify
        self._connection: McpConnection | None = None
        self._on_demand: OnDemandConnection | None = None
        """The same, if connections are made when they are wanted."""
        self._made_of: Ingredients | None = None
        self._calls = 0
        self._call_ended = anyio.Event()
        self.list_is_old = False
        """Whether `notifications/tools/list_changed` came since the tools were listed."""
        self._may_retry = False
        self.stands_in = False
        """Whether the listing is that of a server that this one replaces, until it starts."""
        self._running = anyio.CancelScope()
        self._lease = None if config.owner is None else config.owner.lease()
        """Of what owns the server: until it has left its set and its connection has ended."""
        self._has_left = self._is_running = False
        if not self.startable:
            self.settled.set()

    async def run(self, cwd: str) -> None:
        """Start the server and hold its connection until it ends or is stopped."""
        if self.settled.is_set():
            return
        self._begin(cwd)
        try:
            with self._running:
                for wait_s in (*RETRY_WAITS_S, None):
                    if self.settled.is_set():
                        return
                    self._may_retry = wait_s is not None
                    await self._connect_once(cwd)
                    if wait_s is not None and not self.settled.is_set():
                        await anyio.sleep(wait_s)
        finally:
            self._is_running = False
            self._let_go()

    def serve_on_demand(self, tasks: anyio.abc.TaskGroup, cwd: str) -> None:
        """Be ready at once, as its listing is known; what it is asked makes connections in `tasks`.

        `end` ends them.
        """
        config = self.config
        assert config.known is not None
        if self.settled.is_set():
            return
        processes = self._processes

        async def connect(connection: ConnectionOwner) -> None:
            await hold_connection(config, cwd, connection, processes)

        self._begin(cwd)
        if not self.settled.is_set():
            self._on_demand = OnDemandConnection(tasks, connect, self, self._let_go)
            self.ready(self._on_demand, config.known)

    def _begin(self, cwd: str) -> None:
        self._status = "starting"
        self._made_of = ingredients(self.config, cwd)
        self._notify(self.config.name, "starting", None)
        if VALID_NAME.fullmatch(self.config.name) is None:
            pattern = f"^{VALID_NAME.pattern}$"
            reason = f"Invalid MCP server name '{self.config.name}': must match pattern {pattern}"
            self.failed(StartupFailed(reason))
        self._is_running = not self.settled.is_set()

    async def _connect_once(self, cwd: str) -> None:
        try:
            await hold_connection(self.config, cwd, self, self._processes)
        except LoadFailed as exc:
            self.failed(StartupFailed(f"the client cannot be loaded: {exc}", transient=True))
        except Exception:
            # A connection may raise anything; it must not reach other servers or the thread.
            logger.exception("MCP server %s: its connection broke", self.config.name)
            if not self.settled.is_set():
                self.failed(StartupFailed("the connection broke"))
        if self._status == "connected":
            self._status = "failed"
            self.failure = StartupFailed("Transport closed")

    def ready(self, connection: McpConnection, listing: Listing) -> None:
        """Take the connection into service."""
        if self.settled.is_set():
            return
        self._status, self._connection, self.listing = "connected", connection, listing
        self.record.started_at_ms = SystemClock().now_ms()
        self.settled.set()
        self._notify(self.config.name, "ready", None)

    def failed(self, failure: StartupFailed) -> None:
        """Note that the start failed, unless it will be tried again."""
        if self.settled.is_set() or (failure.transient and self._may_retry):
            return
        self._status = "authenticationRequired" if isinstance(failure, NotLoggedIn) else "failed"
        self.failure, self.record.last_error = failure, str(failure)
        if self.stands_in:
            self.listing = None
        self.settled.set()
        self._notify(self.config.name, "failed", text_for_people(self.config, failure))

    def lost(self, reason: str) -> None:
        """Note why the server ended, with the name of its command."""
        transport = self.config.transport
        command = transport.command if isinstance(transport, StdioTransport) else None
        self.record.last_error = reason if command is None else f"{command}: {reason}"

    def misbehaved(self, what: str) -> None:
        """Note what the server did against MCP; it goes on."""
        if what != self.record.last_fault:
            self.record.last_fault = what
            logger.warning("MCP server %s %s", self.config.name, what)

    def tools_changed(self) -> None:
        """Note that the list of tools is out of date; said once until it is listed again."""
        if not self.list_is_old:
            self.list_is_old = True
            self._notify(self.config.name, "toolsChanged", None)

    async def elicit(self, params: JsonObject) -> JsonObject:
        """Pass a question of the server on; the clocks of its calls stop until it is answered.

        Raises:
            BadQuestion: it makes no sense.
        """
        assert self._asks is not None, "a server that may not ask does not know how"
        if not self.calls.may_ask:
            return CANCELLED
        check_size(params)
        question = ServerQuestion(self.config.name, params, self.calls.newest_caller)
        with self.calls.question():
            return await self._asks.elicit(question)

    def fits(self, config: ServerConfig, cwd: str) -> bool:
        """Whether the server runs, or starts, as this configuration would have it."""
        lists_same = self.config.known == config.known
        return self.lives and lists_same and self._made_of == ingredients(config, cwd)

    def reuse(self, config: ServerConfig, *, announce: bool) -> None:
        """Go on with new filters and bounds; with `announce` one that runs is said to be ready."""
        self.config = config
        if announce and self._status == "connected":
            self._notify(config.name, "ready", None)

    @property
    def status(self) -> Status:
        """The current status of the server."""
        return "failed" if self._status == "connected" and self.has_died else self._status

    @property
    def pid(self) -> int | None:
        """Id of its process; None while there is none, or where it is none of this machine."""
        lives = self._connection is not None and not self._connection.closed.is_set()
        return self._connection.pid if lives and self._connection is not None else None

    @property
    def lives(self) -> bool:
        """Whether it runs, or is being started."""
        return self.status in ("starting", "connected")

    @property
    def is_in_use(self) -> bool:
        """Whether a call runs on its connection."""
        return self._calls > 0

    @property
    def has_died(self) -> bool:
        """Whether the server was ready and has ended since."""
        return self._connection is not None and self._connection.closed.is_set()

    @property
    def may_be_revived(self) -> bool:
        """Whether it is a process that was ready, has died, and was not asked to."""
        is_process = isinstance(self.config.transport, StdioTransport)
        return is_process and self.has_died and not self.stop.is_set()

    def leave(self) -> None:
        """Note that the set has this server no more; what owns it is let go with the connection."""
        self._has_left = True
        self._let_go()

    def _let_go(self) -> None:
        if self._on_demand is not None and self._on_demand.is_over:
            self._is_running = False
        if self._has_left and not self._is_running and self._lease is not None:
            self._lease.release()
            self._lease = None

    def cancel_start(self) -> None:
        """Give a start up that is not decided yet."""
        if self.settled.is_set():
            return
        began = self._status == "starting"
        self._status = "cancelled"
        self.failure = StartupFailed("cancelled")
        self.settled.set()
        if began:
            self._notify(self.config.name, "cancelled", None)
            self._running.cancel()

    async def retire(self) -> None:
        """End the connection once its calls have ended, or after a bound."""
        with anyio.move_on_after(max(self.config.tool_timeout_s, MIN_LEASE_S)):
            while self._calls:
                self._call_ended = anyio.Event()
                await self._call_ended.wait()
        self.end()

    def end(self) -> None:
        """Begin to end the connection, whatever runs on it."""
        self.stop.set()
        if self._on_demand is not None:
            self._on_demand.close()

    @asynccontextmanager
    async def lease(self) -> AsyncIterator[McpConnection]:
        """Hold the connection of a server whose start is decided; `retire` waits for the end.

        Raises:
            UnknownServer: the server is disabled.
            ClientUnavailable: it did not start.
            TransportClosed: it has ended.
        """
        if self._status == "disabled":
            raise UnknownServer(self.config.name)
        if self._connection is None:
            raise ClientUnavailable(f"failed to get client: {self.failure}")
        if self._connection.closed.is_set():
            raise TransportClosed
        self._calls += 1
        try:
            yield self._connection
        finally:
            self._calls -= 1
            self._call_ended.set()
