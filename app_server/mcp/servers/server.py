"""One configured server: its status, its connection, its last listing.

Clients are sent each step of a start once: `starting`, then exactly one of `ready`, `failed`,
`cancelled`. `Status` is what a row of `mcpServerStatus/list` shows. A server that dies later keeps
its listing. One that is started again is a new McpServer; the old one is retired, and keeps its
connection for the calls that run on it.
Source: docs/mcp.md, "Connections".
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

import anyio
import anyio.abc

from app_server.mcp.catalog.config import (
    VALID_NAME,
    Ingredients,
    ServerConfig,
    ingredients,
)
from app_server.mcp.connection import McpConnection
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
from app_server.mcp.processes import ServerOutput
from app_server.mcp.record import Learned, ServerRecord
from app_server.mcp.servers.pool import (
    InstanceConnection,
    OwnerShare,
    ServerInstance,
    ServerPool,
)
from app_server.mcp.tools.listing import Listing
from app_server.mcp_wire.errors import TransportClosed
from app_server.mcp_wire.json_rpc_client import Caller
from app_server.runtime.clock import SystemClock
from app_server.runtime.late_event import LateEvent
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

ServerStep: TypeAlias = Literal["starting", "ready", "failed", "cancelled", "toolsChanged"]


class ServerNews(NamedTuple):
    """Step of a server's start, or the change of its tools."""

    name: str
    step: ServerStep
    error: str | None
    """The text of a failure."""


SayStep: TypeAlias = Callable[[str, ServerStep, str | None], None]
"""Called with the raw name, what is new, and the text of a failure."""


class ServerParts:
    """Parts of a server that its first use makes: most threads use few of their servers."""

    config: ServerConfig

    @cached_property
    def stop(self) -> LateEvent:
        """Set to end the connection."""
        return LateEvent()

    @cached_property
    def wanted(self) -> LateEvent:
        """Set to start a lazy server whose tools are unknown."""
        return LateEvent()

    @cached_property
    def running_calls(self) -> RunningCalls:
        """The calls of the thread that run."""
        return RunningCalls()

    @cached_property
    def record(self) -> ServerRecord:
        """Record of its starts, failures and restarts; its instance's, if it has one."""
        return ServerRecord(self.config)

    @cached_property
    def learned(self) -> Learned:
        """Findings of its connections."""
        return Learned()

    @cached_property
    def log(self) -> ServerOutput:
        """Messages that a shared server logged for calls of this thread."""
        return ServerOutput()


class McpServer(ServerParts):
    """One server of one set; also the owner of its connection."""

    def __init__(
        self,
        config: ServerConfig,
        pool: ServerPool,
        say: SayStep,
        asks: ElicitationPort | None = None,
    ) -> None:
        self.config = config
        self._pool = pool
        self.startable = config.enabled and pool.processes.has(config.environment_id)
        """Whether a start may be tried."""
        self._status: Status = "notStarted" if self.startable else "disabled"
        self.listing: Listing | None = config.known
        """The listing from its registration or its last start; kept while it is started again."""
        self.failure: StartupFailed | None = None
        self.settled = LateEvent()
        """Set once a start has been decided, or will not be tried."""
        self.can_elicit = asks is not None
        self._asks = asks
        self.returns = 0
        """Restarts in a row after its environment could be reached again."""
        self.waited_for = False
        """Whether a turn has given the start its grace."""
        self._say = say
        self._connection: McpConnection | None = None
        self.instance: ServerInstance | None = None
        """The instance behind it, if it does not hold a connection of its own from start to end."""
        self._joined: InstanceConnection | None = None
        """The connection to the instance."""
        self._made_of: Ingredients | None = None
        self._leases = 0
        self._lease_ended: LateEvent | None = None
        """Set by the end of a lease, while somebody waits for it."""
        self.list_is_old = False
        """Whether `notifications/tools/list_changed` came since the tools were listed."""
        self._may_retry = False
        self.stands_in = False
        """Whether the listing is that of a server that this one replaces, until it starts."""
        self._running: anyio.CancelScope | None = None
        self.owner_share = OwnerShare(config)
        if not self.startable:
            self.settled.set()

    async def run(self, cwd: str) -> None:
        """Start the server and hold its connection until it ends or is stopped.

        Returns when the server is ready, if it has an instance. A lazy one whose tools are unknown
        waits until it is `wanted`.
        """
        if self.settled.is_set():
            return
        try:
            with anyio.CancelScope() as self._running:
                instance = self.instance if self.config.lazy else None
                if instance is not None and await instance.read_cache() is None:
                    await self.wanted.wait()
                self._begin(cwd)
                for wait_s in (*self._pool.retry_waits_s, None):
                    if self.settled.is_set():
                        return
                    self._may_retry = wait_s is not None
                    await self._connect_once(cwd)
                    if wait_s is not None and not self.settled.is_set():
                        await anyio.sleep(wait_s)
        finally:
            self._leave_unless_connected()

    def join(self, own: anyio.abc.TaskGroup, cwd: str) -> bool:
        """Join the instance behind the server, if there is one; False: it has to be run.

        With known tools it is ready at once. Connections that are not shared are made in `own`;
        `end` ends them.
        """
        if self.settled.is_set():
            return True
        self.instance = instance = self._pool.instance_of(
            self.config, cwd, own, can_elicit=self.can_elicit
        )
        if instance is None:
            return False
        self._joined = instance.join(self)
        if instance.listing is None or instance.failure is not None:
            return False
        self._begin(cwd)
        self._serve(self._joined, instance.listing)
        self._leave_unless_connected()
        return True

    def _leave_unless_connected(self) -> None:
        if self._connection is None or self.instance is None:
            joined, self._joined = self._joined, None
            if joined is not None:
                joined.close(keep_warm=True)
            self.owner_share.connection_ended()

    def _begin(self, cwd: str) -> None:
        self._status = "starting"
        if self.instance is not None:
            self.record = self.instance.record
            self._made_of = self.instance.made_of
        else:
            self._made_of = ingredients(self.config, cwd)
        self._say(self.config.name, "starting", None)
        if VALID_NAME.fullmatch(self.config.name) is None:
            pattern = f"^{VALID_NAME.pattern}$"
            reason = f"Invalid MCP server name '{self.config.name}': must match pattern {pattern}"
            self.failed(StartupFailed(reason))
        elif self.config.problem is not None:
            self.failed(StartupFailed(self.config.problem))
        self.owner_share.is_connected = not self.settled.is_set()

    async def _connect_once(self, cwd: str) -> None:
        instance, joined = self.instance, self._joined
        try:
            if instance is None or joined is None:
                self.learned = self._pool.learned(self.config, cwd)
                await hold_connection(self.config, cwd, self, self._pool.processes)
            else:
                known = instance.listing if instance.failure is None else None
                self._serve(joined, await joined.start() if known is None else known)
                return
        except StartupFailed as exc:
            self.failed(exc)
            if joined is not None and self._status == "failed" and not exc.is_away:
                # The next request of any thread starts it.
                self._connection = joined
        except TransportClosed:
            logger.debug("MCP server %s: it was stopped while it started", self.config.name)
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
        self.record.started_at_ms = SystemClock().now_ms()
        self.learned.keeps_session = connection.keeps_session
        self._serve(connection, listing)

    def _serve(self, connection: McpConnection, listing: Listing) -> None:
        if self.settled.is_set():
            return
        self._status, self._connection, self.listing = "connected", connection, listing
        self.settled.set()
        self._say(self.config.name, "ready", None)

    def failed(self, failure: StartupFailed) -> None:
        """Note that the start failed, unless it will be tried again."""
        if self.settled.is_set() or (failure.transient and self._may_retry):
            return
        self.record.redact(failure)
        self.learned.protocol_version = None
        self._status = "authenticationRequired" if isinstance(failure, NotLoggedIn) else "failed"
        self.failure = failure
        self.record.did_not_start(failure)
        if self.stands_in:
            self.listing = None
        self.settled.set()
        self._say(self.config.name, "failed", text_for_people(self.config, failure))

    def lost(self, reason: str) -> None:
        """Note why the server ended."""
        self.learned.protocol_version = None
        self.record.ended(reason)

    def relist(self, listing: Listing, *, is_old: bool) -> None:
        """Take what the instance listed; a start that failed before has worked now."""
        self.listing, self.list_is_old = listing, is_old
        if self._status == "failed" and self._connection is not None:
            self._status, self.failure = "connected", None

    def tools_changed(self) -> None:
        """Note that the list of tools is out of date; said once until it is listed again."""
        if not self.list_is_old:
            self.list_is_old = True
            self._say(self.config.name, "toolsChanged", None)

    async def elicit(self, params: JsonObject, caller: Caller | None) -> JsonObject:
        """Pass a question of the server on; the clocks of its calls stop until it is answered.

        One that names no call has the turn of the newest that runs.

        Raises:
            BadQuestion: it makes no sense.
        """
        assert self._asks is not None, "a server that may not ask does not know how"
        if not self.running_calls.may_ask:
            return CANCELLED
        check_size(params)
        turn_id = self.running_calls.newest_turn_id if caller is None else caller.turn_id
        question = ServerQuestion(self.config.name, params, turn_id)
        with self.running_calls.question():
            return await self._asks.elicit(question)

    def logged(self, line: bytes, caller: Caller | None) -> None:
        """Keep a message of the server's log."""
        (self.record.output if self.instance is None else self.log).add(line)

    def fits(self, config: ServerConfig, cwd: str) -> bool:
        """Whether the server runs, or starts, as this configuration would have it."""
        old = self.config
        lists_same = old.known == config.known
        lives_same = (old.share, old.lazy, old.problem) == (
            config.share,
            config.lazy,
            config.problem,
        )
        is_same = lists_same and lives_same and self._made_of == ingredients(config, cwd)
        return self.lives and is_same

    def reuse(self, config: ServerConfig, *, announce: bool) -> None:
        """Go on with new filters and bounds; with `announce` one that runs is said to be ready."""
        self.config = config
        if self.instance is not None:
            self.instance.config = config
        if announce and self._status == "connected":
            self._say(self.config.name, "ready", None)

    @property
    def status(self) -> Status:
        """The current status of the server."""
        instance = self.instance
        cannot_start = instance is not None and instance.failure is not None
        has_failed = self._status == "connected" and (self.has_died or cannot_start)
        return "failed" if has_failed else self._status

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
        return self._leases > 0

    @property
    def has_died(self) -> bool:
        """Whether the server was ready and has ended since."""
        return self._connection is not None and self._connection.closed.is_set()

    def cancel_start(self) -> None:
        """Give a start up that is not decided yet."""
        if self.settled.is_set():
            return
        began = self._status == "starting"
        self._status = "cancelled"
        self.failure = StartupFailed("cancelled")
        self.settled.set()
        if began:
            self._say(self.config.name, "cancelled", None)
        if self._running is not None:
            self._running.cancel()

    async def retire(self) -> None:
        """End the connection once its calls have ended, or after a bound."""
        with anyio.move_on_after(max(self.config.tool_timeout_s, self._pool.min_lease_s)):
            while self._leases:
                self._lease_ended = LateEvent()
                await self._lease_ended.wait()
        self.end()

    def end(self, *, keep_warm: bool = False) -> None:
        """Begin to end the connection, whatever runs on it.

        A server that no other thread shares ends with it, unless `keep_warm`: then it ends when it
        was not used for a while.
        """
        self.stop.set()
        if self._joined is not None:
            self._joined.close(keep_warm=keep_warm)

    @contextmanager
    def lease(self) -> Iterator[McpConnection]:
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
        self._leases += 1
        try:
            yield self._connection
        finally:
            self._leases -= 1
            if self._lease_ended is not None:
                self._lease_ended.set()
