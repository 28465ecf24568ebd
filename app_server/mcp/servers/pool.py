"""Processes and sessions of servers, each for all threads whose settings make the same one.

An instance is connected to when it is first used. The connection ends when it was not used for a
while, or by itself, and is made again by the next request. In front of it each thread has a
connection of its own, to which everything comes that belongs to its calls.
Source: docs/mcp.md, "Shared servers".
"""

import logging
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import anyio
import anyio.abc
import anyio.to_thread

from app_server.mcp.catalog.config import (
    HttpTransport,
    Ingredients,
    ServerConfig,
    StdioTransport,
    ingredients,
)
from app_server.mcp.connection import McpConnection
from app_server.mcp.elicitation import CANCELLED
from app_server.mcp.errors import ClientUnavailable, StartupFailed
from app_server.mcp.loading import hold_connection
from app_server.mcp.processes import Processes, ServerOutput
from app_server.mcp.redaction import redact
from app_server.mcp.servers.tool_cache import ToolCache
from app_server.mcp.tools.listing import Listing
from app_server.mcp_wire.errors import ProgressCallback, RequestRefused, TransportClosed
from app_server.observability.log_context import THREAD, start_apart
from app_server.runtime.clock import SystemClock
from app_server.runtime.loader import LoadFailed
from protocol.jsonrpc.errors import INVALID_REQUEST, METHOD_NOT_FOUND
from protocol.model import JsonObject

logger = logging.getLogger(__name__)

KNOWN_IDLE_S = 60.0
"""Seconds without use after which the connection to a registered server is ended."""

STABLE_S = 60.0
"""A server that ran so long before it ended is started again at once."""

MAX_WAIT_S = 30.0
"""Between the end of a shared server that ends again and again, and its next start."""

MAX_REMEMBERED = 256
"""Servers of which it is remembered that they keep no session."""


@dataclass(slots=True)
class ServerRecord:
    """What became of a server so far; a server that takes the place of one goes on with its."""

    started_at_ms: int | None = None
    """When it became ready last, in Unix milliseconds."""
    restarts: int = 0
    """Starts after the first one, whatever ended the server."""
    last_error: str | None = None
    """Why it did not start, ended, or was refused something, last."""
    last_fault: str | None = None
    """What it did last against MCP, as a text that begins with a verb; it went on."""
    output: ServerOutput = field(default_factory=ServerOutput)
    """What its processes wrote to stderr."""
    shared_by: int = 1
    """Threads that use the process or the session, this one included."""
    tools_cached_at_ms: int | None = None
    """When the tools were listed, in Unix milliseconds, if they come from the cache."""

    def ended(self, config: ServerConfig, reason: str) -> None:
        """Note why the server ended, with the name of its command."""
        transport = config.transport
        command = transport.command if isinstance(transport, StdioTransport) else None
        self.last_error = reason if command is None else f"{command}: {reason}"

    def misbehaved(self, config: ServerConfig, what: str) -> None:
        """Note what the server did against MCP; it goes on."""
        if what != self.last_fault:
            self.last_fault = what
            logger.warning("MCP server %s %s", config.name, what)


class OwnerShare:
    """A server's share in what owns its registration, until it has left and is not connected."""

    def __init__(self, config: ServerConfig) -> None:
        """Lease the owner, if there is one."""
        self._lease = None if config.owner is None else config.owner.lease()
        self._has_left = False
        self.is_connected = False

    def leave(self) -> None:
        """Note that no thread has the server any more."""
        self._has_left = True
        self._let_go()

    def connection_ended(self) -> None:
        """Note that no connection is left."""
        self.is_connected = False
        self._let_go()

    def _let_go(self) -> None:
        if self._has_left and not self.is_connected and self._lease is not None:
            self._lease.release()
            self._lease = None


class InstanceUser(Protocol):
    """The server of one thread, in front of an instance."""

    can_elicit: bool
    """Whether there is anybody who could be asked."""
    owner_share: "OwnerShare"

    def relist(self, listing: Listing, *, is_old: bool) -> None:
        """Take what the server listed; `is_old`: it has other tools by now."""

    def tools_changed(self) -> None:
        """Note that the server has other tools than those it listed."""

    async def elicit(self, params: JsonObject) -> JsonObject:
        """Ask the user what the server wants to know; see ElicitationPort."""


class InstanceConnection:
    """An McpConnection of one thread to an instance, and the Asker of its calls."""

    def __init__(self, instance: "ServerInstance", user: InstanceUser) -> None:
        self.closed = anyio.Event()
        self.user: InstanceUser | None = user
        self._instance = instance
        self._scopes: set[anyio.CancelScope] = set()

    @property
    def keeps_session(self) -> bool:
        """Whether the server may remember what was said on the connection; see McpConnection."""
        return self._instance.keeps_session

    @property
    def pid(self) -> int | None:
        """Id of the server's process, while there is one of this machine."""
        return self._instance.pid

    async def start(self) -> Listing:
        """Start the server unless it runs, and return what it lists.

        Raises:
            StartupFailed: it did not start; the next request tries again.
            TransportClosed: this connection was closed.
        """
        async with self._used():
            assert self._instance.listing is not None, "it is ready"
            return self._instance.listing

    async def request(
        self,
        method: str,
        params: JsonObject,
        *,
        timeout_s: float | None = None,
        on_progress: ProgressCallback | None = None,
        asker: object = None,
    ) -> JsonObject:
        """Call a method, of a server that is started for it if it does not run; see McpConnection.

        Questions that it leads to come to this connection, whatever `asker` is.

        Raises:
            ClientUnavailable: the server does not start; the next request tries again.
            PeerError, TransportClosed, RequestTimedOut
        """
        try:
            async with self._used() as live:
                return await live.request(
                    method, params, timeout_s=timeout_s, on_progress=on_progress, asker=self
                )
        except StartupFailed as exc:
            raise ClientUnavailable(f"failed to get client: {exc}") from exc

    @asynccontextmanager
    async def _used(self) -> AsyncIterator[McpConnection]:
        with self._until_closed():
            async with self._instance.used(self) as live:
                yield live
                return
        raise TransportClosed

    async def elicit(self, params: JsonObject) -> JsonObject:
        """Pass on a question that belongs to this thread; it is cancelled with the connection.

        Raises:
            RequestRefused: there is nobody to ask, or it makes no sense.
        """
        if self.user is None:
            return CANCELLED
        if not self.user.can_elicit:
            raise RequestRefused(METHOD_NOT_FOUND, "nobody can be asked here")
        with self._until_closed():
            return await self.user.elicit(params)
        return CANCELLED

    @contextmanager
    def _until_closed(self) -> Iterator[None]:
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                yield
            finally:
                self._scopes.discard(scope)

    def close(self, *, keep_warm: bool) -> None:
        """End what runs for the thread, and leave the instance; see ServerInstance.leave."""
        if self.closed.is_set():
            return
        self.closed.set()
        for scope in self._scopes:
            scope.cancel()
        assert self.user is not None
        user, self.user = self.user, None
        self._instance.leave(self, user, keep_warm=keep_warm)


class ServerInstance:
    """One process or session, from one connection to the next, and the threads that use it."""

    def __init__(
        self,
        config: ServerConfig,
        cwd: str,
        processes: Processes,
        tasks: anyio.abc.TaskGroup,
        cache: ToolCache | None = None,
        *,
        is_shared: bool,
        can_elicit: bool = True,
    ) -> None:
        """Connect nowhere yet; `cache` is that of a lazy server, `tasks` owns connections."""
        self.config = config
        self.cwd = cwd
        self.can_elicit = can_elicit
        self.listing: Listing | None = config.known
        self.keeps_session = True
        self.protocol_version = None if config.known is None else config.known.protocol_version
        """Of MCP, as its connection agreed on it last; None before the first."""
        self.record = ServerRecord()
        self.list_changes = 0
        """How often the server had other tools than those it listed."""
        self.failure: StartupFailed | None = None
        """Why the last start failed, if it did."""
        self._is_shared = is_shared
        self._processes = processes
        self._tasks = tasks
        self._cache = cache
        self._reading = anyio.Lock()
        self._connections: list[InstanceConnection] = []
        self._life: _Life | None = None
        self._lives = 0
        """Connections, with those that end."""
        self._failures = 0
        """Starts and runs in a row that ended badly."""
        self._may_start_at = 0.0
        """On the clock of anyio."""
        self._left: list[InstanceUser] = []
        """Users that left while there was a connection."""

    @property
    def is_over(self) -> bool:
        """Whether no thread uses it, and no connection is left."""
        return not self._connections and not self._lives

    @property
    def pid(self) -> int | None:
        """Id of the server's process, while there is one of this machine."""
        life = self._life
        return None if life is None or life.is_over or life.live is None else life.live.pid

    async def read_cache(self) -> Listing | None:
        """Return what is known of the tools without a start: what was listed last.

        Cancelling waits for a read that has begun.
        """
        async with self._reading:
            if self.listing is None and self._cache is not None:
                found = await anyio.to_thread.run_sync(self._cache.read, self.config, self.cwd)
                if found is not None and self.listing is None:
                    self.listing, self.record.tools_cached_at_ms = found
        return self.listing

    def join(self, user: InstanceUser) -> InstanceConnection:
        """Return a connection for one more thread."""
        connection = InstanceConnection(self, user)
        self._connections.append(connection)
        self.record.shared_by = len(self._connections)
        return connection

    def leave(self, connection: InstanceConnection, user: InstanceUser, *, keep_warm: bool) -> None:
        """Go on without a thread; without any the server ends at once, unless `keep_warm`.

        With it a shared server ends when it was not used for a while.
        """
        self._connections.remove(connection)
        self.record.shared_by = len(self._connections)
        if not self._connections and not (keep_warm and self._is_shared) and self._life is not None:
            self._life.scope.cancel()
        if self._lives and not self._is_shared:
            self._left.append(user)
        else:
            user.owner_share.connection_ended()

    def relist(self, listing: Listing, changes: int) -> None:
        """Give all threads what the server listed after so many `list_changes`."""
        self.listing, self.record.tools_cached_at_ms = listing, None
        for connection in self._connections:
            if connection.user is not None:
                connection.user.relist(listing, is_old=changes != self.list_changes)

    def tools_changed(self) -> None:
        """Note that the server has other tools than those it listed."""
        self.list_changes += 1
        for connection in self._connections:
            if connection.user is not None:
                connection.user.tools_changed()

    @asynccontextmanager
    async def used(self, connection: InstanceConnection) -> AsyncIterator[McpConnection]:
        """Count the context as use; starts the server if it does not run.

        A use that waits for a start which `restart` replaces waits for the next one.

        Raises:
            StartupFailed: it does not start.
            TransportClosed: the thread's connection was closed.
        """
        while True:
            if connection.closed.is_set():
                raise TransportClosed
            life = self._current()
            with life.use(connection):
                await life.settled.wait()
                if life.live is not None:
                    yield life.live
                    return
            if not life.is_replaced:
                assert life.failure is not None
                raise life.failure

    def _current(self) -> "_Life":
        life = self._life
        if life is None or life.is_over:
            before, life = life, _Life(self)
            self._life = life
            self._lives += 1
            thread_id = None if self._is_shared else THREAD.get()
            start_apart(self._tasks, self._hold, life, before, thread_id=thread_id)
        return life

    def restart(self) -> None:
        """Have the next use start the server anew; never waits.

        Calls end on the old one; a start that is not decided is given up.
        """
        life, self._life = self._life, None
        self._failures, self._may_start_at, self.failure = 0, 0.0, None
        if life is not None:
            life.replace()

    async def elicit(self, life: "_Life", params: JsonObject) -> JsonObject:
        """Ask the only thread with requests under way; without any, the one that called last.

        Only calls on the connection that the question came on count.

        Raises:
            RequestRefused: several threads could be meant, or the question makes no sense.
        """
        asked = [one for one in self._connections if one in life.users]
        if not asked:
            asked = [one for one in self._connections if one is life.last_user]
            asked = asked or self._connections
        if len(asked) == 1:
            return await asked[0].elicit(params)
        text = f"the question names no call, and {len(asked)} threads could be meant"
        self.record.last_error = f"a question of the server was refused: {text}"
        logger.warning("MCP server %s: a question was refused: %s", self.config.name, text)
        raise RequestRefused(INVALID_REQUEST, text)

    def started(self, connection: McpConnection, listing: Listing) -> None:
        """Take a new connection into service."""
        record = self.record
        record.restarts += record.started_at_ms is not None
        record.started_at_ms = SystemClock().now_ms()
        record.tools_cached_at_ms = None
        self.failure, self.keeps_session = None, connection.keeps_session
        if self.listing is not None and listing != self.listing:
            self.tools_changed()
        # Also the same list: a thread whose start failed has none.
        self.relist(listing, self.list_changes)
        if self._cache is not None:
            start_apart(self._tasks, self._keep, listing, record.started_at_ms)

    async def _keep(self, listing: Listing, at_ms: int) -> None:
        assert self._cache is not None
        await anyio.to_thread.run_sync(self._cache.write, self.config, self.cwd, listing, at_ms)

    async def _hold(self, life: "_Life", before: "_Life | None") -> None:
        began_at = anyio.current_time()
        try:
            with life.scope:
                if before is not None and self._is_shared:
                    await before.ended.wait()
                await anyio.sleep_until(self._may_start_at)
                began_at = anyio.current_time()
                await self._hold_once(life)
        finally:
            life.failed(StartupFailed("the connection was closed"))
            self._lives -= 1
            self._put_off(life, anyio.current_time() - began_at)
            life.ended.set()
            if not self._lives:
                left, self._left = self._left, []
                for user in left:
                    user.owner_share.connection_ended()

    async def _hold_once(self, life: "_Life") -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(life.stop_when_idle, self._idle_s)
            try:
                await hold_connection(self.config, self.cwd, life, self._processes)
            except LoadFailed as exc:
                life.failed(StartupFailed(f"the client cannot be loaded: {exc}", transient=True))
            except Exception:
                # Its tasks may raise anything; it must not reach other servers or a thread.
                logger.exception("MCP server %s: its connection broke", self.config.name)
            life.failed(StartupFailed("the connection broke"))
            life.stop.set()
            tasks.cancel_scope.cancel()

    def _put_off(self, life: "_Life", ran_s: float) -> None:
        """Have the next start wait if this one failed, or the server ended by itself."""
        if not self._is_shared or life.is_replaced:
            return
        if life.live is None:
            self.failure = life.failure
            self.record.last_error = str(life.failure)
        elif not life.was_lost:
            self._failures = 0
            return
        self._failures = 1 if life.live is not None and ran_s >= STABLE_S else self._failures + 1
        wait_s = min(2.0 ** (self._failures - 2), MAX_WAIT_S) if self._failures > 1 else 0.0
        self._may_start_at = anyio.current_time() + wait_s

    @property
    def _idle_s(self) -> float:
        return KNOWN_IDLE_S if self.config.known is not None else self.config.idle_s


class _Life:
    """One connection of an instance, from its start to its end, and its use: a ConnectionOwner."""

    def __init__(self, instance: ServerInstance) -> None:
        self.stop = anyio.Event()
        self.can_elicit = instance.can_elicit
        self.protocol_version = instance.protocol_version
        self.output = instance.record.output
        self.settled = anyio.Event()
        self.ended = anyio.Event()
        """Set when nothing of it is left."""
        self.scope = anyio.CancelScope()
        self.live: McpConnection | None = None
        self.failure: StartupFailed | None = None
        self.was_lost = False
        self._instance = instance
        self.users: list[InstanceConnection] = []
        """Of each use, the connection of its thread."""
        self.last_user: InstanceConnection | None = None
        self.is_replaced = False
        """Whether the next use starts another one, however this one ends."""
        self._changed = anyio.Event()

    @property
    def is_over(self) -> bool:
        """Whether it takes no further use."""
        has_died = self.live is not None and self.live.closed.is_set()
        ends = self.stop.is_set() or self.scope.cancel_called
        return ends or self.failure is not None or has_died

    @contextmanager
    def use(self, user: InstanceConnection) -> Iterator[None]:
        """Count the context as use."""
        self.users.append(user)
        self.last_user = user
        try:
            yield
        finally:
            self.users.remove(user)
            self._changed.set()

    def replace(self) -> None:
        """Have the connection end with the last use that goes on, or give up its start."""
        self.is_replaced = True
        self._changed.set()
        if not self.settled.is_set():
            self.failed(StartupFailed("the server was restarted"))
            self.scope.cancel()

    async def stop_when_idle(self, idle_s: float) -> None:
        """End the connection once it has been without use for `idle_s`, or is replaced."""
        while True:
            self._changed = anyio.Event()
            with anyio.move_on_after(idle_s) as waited:
                await self._changed.wait()
            if (waited.cancelled_caught or self.is_replaced) and not self.users:
                self.stop.set()
                return

    def ready(self, connection: McpConnection, listing: Listing) -> None:
        """Take the connection into service, unless its start was given up."""
        if self.settled.is_set():
            return
        self.live = connection
        self._instance.protocol_version = self.protocol_version
        self._instance.started(connection, listing)
        self.settled.set()

    def failed(self, failure: StartupFailed) -> None:
        """Note why there is no connection."""
        if not self.settled.is_set():
            redact(failure, self._instance.config)
            self.failure = failure
            self.settled.set()

    def lost(self, reason: str) -> None:
        """Note that the server ended by itself; the next request starts it again."""
        self.was_lost = True
        self._instance.record.ended(self._instance.config, reason)
        logger.info("MCP server %s: it has ended", self._instance.config.name)

    def misbehaved(self, what: str) -> None:
        """Note what the server did against MCP; it goes on."""
        self._instance.record.misbehaved(self._instance.config, what)

    def tools_changed(self) -> None:
        """Pass it on to all threads."""
        self._instance.tools_changed()

    async def elicit(self, params: JsonObject) -> JsonObject:
        """Answer a question that names no call; see ServerInstance."""
        return await self._instance.elicit(self, params)


@dataclass(frozen=True, slots=True)
class _Identity:
    """What two threads have in common that share an instance."""

    name: str
    made_of: Ingredients
    folder: str | None
    """Of the thread, where it matters."""
    environment: str | None
    """What the environment is now."""
    is_lazy: bool


class ServerPool:
    """The instances that the threads of one server process share; without `run` there are none."""

    def __init__(self, processes: Processes, home: Path | None = None) -> None:
        """Start processes with `processes`; lists of lazy servers are kept in `home`."""
        self.processes = processes
        self._cache = None if home is None else ToolCache(home)
        self._shared: list[tuple[_Identity, ServerInstance]] = []
        self._sessionless: deque[_Identity] = deque(maxlen=MAX_REMEMBERED)
        self._tasks: anyio.abc.TaskGroup | None = None
        self._stopping = anyio.Event()
        self._ended = anyio.Event()

    async def run(self) -> None:
        """Hold the connections of shared servers until `aclose`, or until this is cancelled."""
        try:
            async with anyio.create_task_group() as self._tasks:
                await self._stopping.wait()
                self._tasks.cancel_scope.cancel()
        finally:
            self._tasks = None
            self._ended.set()

    async def aclose(self) -> None:
        """End all shared servers, once no thread uses them, and wait until they have ended."""
        self._stopping.set()
        if self._tasks is not None:
            await self._ended.wait()

    def instance_of(
        self, config: ServerConfig, cwd: str, own: anyio.abc.TaskGroup, *, can_elicit: bool
    ) -> ServerInstance | None:
        """Find or make what a server's connections go through; None: it holds one of its own.

        What is for one thread has its connections in `own`.
        """
        if config.known is None and (shared := self._find(config, cwd)) is not None:
            return shared
        if config.known is None and not config.lazy:
            return None
        cache = self._cache if config.lazy else None
        return ServerInstance(
            config, cwd, self.processes, own, cache, is_shared=False, can_elicit=can_elicit
        )

    def _find(self, config: ServerConfig, cwd: str) -> ServerInstance | None:
        if self._tasks is None or config.share == "thread":
            return None
        identity = self._identity(config, cwd)
        if config.share is None and (config.is_registered or identity not in self._sessionless):
            return None
        self._shared = [known for known in self._shared if not known[1].is_over]
        for known, instance in self._shared:
            if known == identity:
                # Its bounds are those of the thread that came last.
                instance.config = config
                return instance
        cache = self._cache if config.lazy else None
        instance = ServerInstance(config, cwd, self.processes, self._tasks, cache, is_shared=True)
        self._shared.append((identity, instance))
        return instance

    def connected(self, config: ServerConfig, cwd: str, connection: McpConnection) -> None:
        """Learn from the connection of one thread whether threads to come may share one."""
        if config.share is not None or config.is_registered:
            return
        identity = self._identity(config, cwd)
        is_known = identity in self._sessionless
        if connection.keeps_session and is_known:
            self._sessionless.remove(identity)
        elif not connection.keeps_session and not is_known:
            self._sessionless.append(identity)

    def _identity(self, config: ServerConfig, cwd: str) -> _Identity:
        transport = config.transport
        helps = isinstance(transport, HttpTransport) and transport.header_command is not None
        return _Identity(
            name=config.name,
            made_of=ingredients(config, cwd),
            folder=cwd if helps or config.share == "folder" else None,
            environment=self.processes.instance_of(config.environment_id),
            is_lazy=config.lazy,
        )
