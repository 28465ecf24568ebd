"""Processes and sessions of servers, each for all threads whose settings make the same one.

An instance is connected to when it is first used. The connection ends when it was not used for a
while, or by itself, and is made again by the next request. In front of it each thread has a
connection of its own, to which everything comes that belongs to its calls. The lists of tools of
lazy servers are kept on disk, so that threads know them without a start.
Source: docs/mcp.md, "Shared servers".
"""

import hashlib
import json
import logging
import secrets
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple, Protocol, TypeGuard

import anyio
import anyio.abc
import anyio.to_thread
from pydantic_core import from_json, to_json

from app_server.mcp.bounds import MAX_LIST_BYTES
from app_server.mcp.catalog.config import (
    DEFAULT_CALL_S,
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
from app_server.mcp.processes import Processes
from app_server.mcp.record import Learned, ServerRecord
from app_server.mcp.tools.listing import Listing
from app_server.mcp_wire.errors import ProgressCallback, RequestRefused, TransportClosed
from app_server.mcp_wire.json_rpc_client import Asker, Caller
from app_server.mcp_wire.revisions import STATELESS
from app_server.observability.log_context import THREAD, start_apart
from app_server.runtime.clock import SystemClock
from app_server.runtime.files.disk import atomic_write, make_folder
from app_server.runtime.late_event import LateEvent
from app_server.runtime.loader import LoadFailed
from protocol.jsonrpc.errors import INVALID_REQUEST, METHOD_NOT_FOUND
from protocol.model import Json, JsonObject

logger = logging.getLogger(__name__)


FOLDER = "mcp_tools"

MAX_FILES = 64
"""Lists that are kept; those that were written first are deleted."""

MAX_FILE_BYTES = MAX_LIST_BYTES + 64 * 1024
"""Of one file; a larger one is neither read nor written."""

VERSION = 1


class ToolCache:
    """One file for each server with its settings, `cache/mcp_tools/DIGEST.json`.

    The digest is of what the settings say of the transport and the folder, so no variable of the
    environment is in it. Every method blocks.
    """

    def __init__(
        self, home: Path, *, max_files: int = MAX_FILES, max_file_bytes: int = MAX_FILE_BYTES
    ) -> None:
        """Choose the folder; nothing is opened yet.

        Of more than `max_files` those that were written first are deleted; what has more than
        `max_file_bytes` is neither read nor written.
        """
        self._max_files = max_files
        self._max_file_bytes = max_file_bytes
        self._folder = home / "cache" / FOLDER

    def read(self, config: ServerConfig, cwd: str) -> tuple[Listing, int] | None:
        """Return a server's list, and when it was made in Unix milliseconds; None: none is usable.

        A file that cannot be used is as good as none.
        """
        try:
            with self._file(config, cwd).open("rb") as file:
                content = file.read(self._max_file_bytes + 1)
            stored = from_json(content) if len(content) <= self._max_file_bytes else None
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as exc:
            logger.warning("a list of tools cannot be read: %s", type(exc).__name__)
            return None
        if not isinstance(stored, dict) or stored.get("version") != VERSION:
            return None
        hello, tools, at_ms = stored.get("hello"), stored.get("tools"), stored.get("listedAtMs")
        meta = stored.get("toolsMeta")
        if not isinstance(hello, dict) or not _are_objects(tools) or not isinstance(at_ms, int):
            return None
        return Listing.of(hello, tools, meta if isinstance(meta, dict) else None), at_ms

    def write(self, config: ServerConfig, cwd: str, listing: Listing, at_ms: int) -> None:
        """Replace a server's list; a disk that refuses is a line in the log."""
        stored = {
            "version": VERSION,
            "listedAtMs": at_ms,
            "hello": {
                "protocolVersion": listing.protocol_version,
                "serverInfo": listing.server_info,
                "capabilities": listing.capabilities,
                "instructions": listing.instructions,
            },
            "tools": list(listing.tools.values()),
            "toolsMeta": listing.tools_meta,
        }
        content = to_json(stored, inf_nan_mode="null")
        if len(content) > self._max_file_bytes:
            return
        path = self._file(config, cwd)
        try:
            make_folder(self._folder)
            with atomic_write(path, path.with_suffix(f".{secrets.token_hex(8)}")) as file:
                file.write(content)
            self._delete_oldest()
        except OSError as exc:
            logger.warning("a list of tools cannot be kept: %s", exc)

    def _delete_oldest(self) -> None:
        dated = []
        for path in self._folder.iterdir():
            with suppress(OSError):
                dated.append((path.stat().st_mtime_ns, path))
        for _, path in sorted(dated)[: -self._max_files]:
            with suppress(OSError):
                path.unlink()

    def _file(self, config: ServerConfig, cwd: str) -> Path:
        transport = asdict(config.transport)
        # Of a registration, and in memory alone.
        transport.pop("bearer", None)
        of_thread = isinstance(config.transport, StdioTransport) and config.transport.cwd is None
        parts = [
            config.name,
            config.environment_id,
            config.protocol,
            transport,
            cwd if of_thread else None,
        ]
        text = json.dumps(parts, sort_keys=True, default=str)
        return self._folder / f"{hashlib.sha256(text.encode()).hexdigest()[:40]}.json"


def _are_objects(value: Json) -> TypeGuard[list[JsonObject]]:
    return isinstance(value, list) and all(isinstance(element, dict) for element in value)


KNOWN_IDLE_S = 60.0
"""Seconds without use after which the connection to a registered server is ended."""

STABLE_S = 60.0
"""A server that ran so long before it ended is started again at once."""

MAX_WAIT_S = 30.0
"""Between the end of a shared server that ends again and again, and its next start."""

RETRY_WAITS_S = (0.3, 1.0)
"""Before the second and the third try of a server that was out of reach."""

MIN_LEASE_S = DEFAULT_CALL_S
"""Calls may run at least this long on the connection of a server that was replaced."""

MAX_REMEMBERED = 256
"""Servers of which it is remembered what connections found out."""


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


class InstanceUser(Asker, Protocol):
    """The server of one thread, in front of an instance."""

    can_elicit: bool
    """Whether there is anybody who could be asked."""
    owner_share: "OwnerShare"

    def relist(self, listing: Listing, *, is_old: bool) -> None:
        """Take what the server listed; `is_old`: it has other tools by now."""

    def tools_changed(self) -> None:
        """Note that the server has other tools than those it listed."""


class InstanceConnection:
    """An McpConnection of one thread to an instance, and the Asker of its calls."""

    def __init__(self, instance: "ServerInstance", user: InstanceUser) -> None:
        self.closed = LateEvent()
        self.user: InstanceUser | None = user
        self._instance = instance
        self._scopes: set[anyio.CancelScope] = set()

    @property
    def keeps_session(self) -> bool:
        """Whether the server may remember what was said on the connection; see McpConnection."""
        return self._instance.learned.keeps_session

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
        caller: Caller | None = None,
    ) -> JsonObject:
        """Call a method, of a server that is started for it if it does not run; see McpConnection.

        Questions that it leads to come to this connection, and name the turn of `caller`.

        Raises:
            ClientUnavailable: the server does not start; the next request tries again.
            PeerError, TransportClosed, RequestTimedOut
        """
        try:
            async with self._used() as live:
                ours = Caller(self, None if caller is None else caller.turn_id)
                return await live.request(
                    method, params, timeout_s=timeout_s, on_progress=on_progress, caller=ours
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

    async def elicit(self, params: JsonObject, caller: Caller | None) -> JsonObject:
        """Pass on a question that belongs to this thread; it is cancelled with the connection.

        Raises:
            RequestRefused: there is nobody to ask, or it makes no sense.
        """
        if self.user is None:
            return CANCELLED
        if not self.user.can_elicit:
            raise RequestRefused(METHOD_NOT_FOUND, "nobody can be asked here")
        with self._until_closed():
            return await self.user.elicit(params, caller)
        return CANCELLED

    def logged(self, line: bytes, caller: Caller | None) -> None:
        """Keep a message of the server's log that belongs to this thread."""
        if self.user is not None:
            self.user.logged(line, caller)

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
        self.made_of = ingredients(config, cwd)
        """Settings, resolved now, that threads of this instance have in common."""
        self.can_elicit = can_elicit
        self.listing: Listing | None = config.known
        self.record = ServerRecord(config)
        self.learned = Learned(self.record.protocol_version)
        self.list_changes = 0
        """How often the server had other tools than those it listed."""
        self.failure: StartupFailed | None = None
        """Why the last start failed, if it did."""
        self.idle_s = KNOWN_IDLE_S if config.known is not None else config.idle_s
        """Seconds without a request after which a server that may be idle is ended."""
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
        return life.live.pid if life is not None and self.is_connected and life.live else None

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection, or one is being made."""
        return self._life is not None and not self._life.is_over

    async def read_cache(self) -> Listing | None:
        """Return what is known of the tools without a start: what was listed last.

        Cancelling waits for a read that has begun.
        """
        async with self._reading:
            if self.listing is None and self._cache is not None:
                found = await anyio.to_thread.run_sync(self._cache.read, self.config, self.cwd)
                if found is not None and self.listing is None:
                    self.listing, self.record.tools_listed_at_ms = found
                    self.record.protocol_version = self.listing.protocol_version
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

    def relist(self, listing: Listing, changes: int, at_ms: int) -> None:
        """Give all threads what the server listed after so many `list_changes`."""
        self.listing = listing
        if self.config.known is None:
            self.record.tools_listed_at_ms = at_ms
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
            if life is not None and life.has_died:
                # Before it says so itself, which counts no more.
                self.learned.protocol_version = None
                life.learned = Learned()
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
        self.learned.protocol_version = None
        self._failures, self._may_start_at, self.failure = 0, 0.0, None
        if life is not None:
            life.learned = Learned()
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
            return await asked[0].elicit(params, None)
        text = f"the question names no call, and {len(asked)} threads could be meant"
        self.record.last_error = f"a question of the server was refused: {text}"
        logger.warning("MCP server %s: a question was refused: %s", self.config.name, text)
        raise RequestRefused(INVALID_REQUEST, text)

    def started(self, connection: McpConnection, listing: Listing) -> None:
        """Take a new connection into service."""
        record = self.record
        record.restarts += record.started_at_ms is not None
        record.started_at_ms = SystemClock().now_ms()
        self.failure, self.learned.keeps_session = None, connection.keeps_session
        if self.listing is not None and listing != self.listing:
            self.tools_changed()
        # Also the same list: a thread whose start failed has none.
        self.relist(listing, self.list_changes, record.started_at_ms)
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
            tasks.start_soon(life.stop_when_idle, self.idle_s)
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
            assert life.failure is not None
            self.failure = life.failure
            self.record.did_not_start(life.failure)
        elif not life.was_lost:
            self._failures = 0
            return
        self._failures = 1 if life.live is not None and ran_s >= STABLE_S else self._failures + 1
        wait_s = min(2.0 ** (self._failures - 2), MAX_WAIT_S) if self._failures > 1 else 0.0
        self._may_start_at = anyio.current_time() + wait_s


class _Life:
    """One connection of an instance, from its start to its end, and its use: a ConnectionOwner."""

    def __init__(self, instance: ServerInstance) -> None:
        self.stop = LateEvent()
        self.can_elicit = instance.can_elicit
        self.learned = instance.learned
        self.record = instance.record
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
        ends = self.stop.is_set() or self.scope.cancel_called
        return ends or self.failure is not None or self.has_died

    @property
    def has_died(self) -> bool:
        """Whether the server ended by itself after it was ready."""
        has_ended = self.live is not None and self.live.closed.is_set()
        return has_ended and not self.stop.is_set()

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
        self._instance.started(connection, listing)
        self.settled.set()

    def failed(self, failure: StartupFailed) -> None:
        """Note why there is no connection."""
        if not self.settled.is_set():
            self.record.redact(failure)
            self.failure = failure
            self.learned.protocol_version = None
            self.settled.set()

    def lost(self, reason: str) -> None:
        """Note that the server ended by itself; the next request starts it again."""
        self.was_lost = True
        self.learned.protocol_version = None
        self.record.ended(reason)
        logger.info("MCP server %s: it has ended", self._instance.config.name)

    def tools_changed(self) -> None:
        """Pass it on to all threads."""
        self._instance.tools_changed()

    async def elicit(self, params: JsonObject, caller: Caller | None) -> JsonObject:
        """Answer a question that names no call; see ServerInstance."""
        return await self._instance.elicit(self, params)

    def logged(self, line: bytes, caller: Caller | None) -> None:
        """Keep a message that names no call for the only thread that calls, or for all."""
        calling = set(self.users)
        if len(calling) == 1:
            calling.pop().logged(line, caller)
        else:
            self.record.output.add(line)


class _Identity(NamedTuple):
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
        self.retry_waits_s: Sequence[float] = RETRY_WAITS_S
        """Seconds before each further try of a server that was out of reach."""
        self.min_lease_s = MIN_LEASE_S
        """Seconds that calls may run at least on the connection of a server that was replaced."""
        self._cache = None if home is None else ToolCache(home)
        self._shared: dict[str, list[tuple[_Identity, ServerInstance]]] = {}
        """By name of the server."""
        self._fixed: dict[str, tuple[ServerConfig, str, _Identity]] = {}
        """Settings, folder and identity of the last look-up by name of the server.

        Without those to which variables of this process belong, as they may change."""
        self._learned: deque[tuple[_Identity, Learned]] = deque(maxlen=MAX_REMEMBERED)
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
        instance = ServerInstance(
            config, cwd, self.processes, own, cache, is_shared=False, can_elicit=can_elicit
        )
        if config.known is None:
            instance.learned = self.learned(config, cwd)
        return instance

    def _find(self, config: ServerConfig, cwd: str) -> ServerInstance | None:
        if self._tasks is None or config.share == "thread":
            return None
        if config.share is None and config.is_registered:
            return None
        identity = self._identity(config, cwd)
        may_keep_session = config.share is None and config.protocol != STATELESS
        if may_keep_session and self._learned_of(identity).keeps_session:
            return None
        of_name = self._shared.get(config.name, [])
        for known, instance in of_name:
            if known == identity and not instance.is_over:
                # Its bounds are those of the thread that came last.
                instance.config = config
                return instance
        cache = self._cache if config.lazy else None
        instance = ServerInstance(config, cwd, self.processes, self._tasks, cache, is_shared=True)
        if not config.is_registered:
            instance.learned = self._learned_of(identity)
        self._forget_ended()
        self._shared.setdefault(config.name, []).append((identity, instance))
        return instance

    def _forget_ended(self) -> None:
        for name, of_name in list(self._shared.items()):
            of_name[:] = [known for known in of_name if not known[1].is_over]
            if not of_name:
                del self._shared[name]

    def learned(self, config: ServerConfig, cwd: str) -> Learned:
        """Return what is known of a server, by value of its settings, for all threads to come.

        Of one that is registered at run time nothing is kept.
        """
        return Learned() if config.is_registered else self._learned_of(self._identity(config, cwd))

    def _learned_of(self, identity: _Identity) -> Learned:
        for known, learned in self._learned:
            if known == identity:
                return learned
        learned = Learned()
        self._learned.append((identity, learned))
        return learned

    def _identity(self, config: ServerConfig, cwd: str) -> _Identity:
        transport = config.transport
        environment = self.processes.instance_of(config.environment_id)
        if (fixed := self._fixed.get(config.name)) is not None:
            of_config, of_cwd, identity = fixed
            if of_config is config and of_cwd == cwd and identity.environment == environment:
                return identity
        helps = isinstance(transport, HttpTransport) and transport.header_command is not None
        identity = _Identity(
            name=config.name,
            made_of=ingredients(config, cwd),
            folder=cwd if helps or config.share == "folder" else None,
            environment=environment,
            is_lazy=config.lazy,
        )
        if isinstance(transport, StdioTransport) and not transport.env_vars:
            if len(self._fixed) >= MAX_REMEMBERED:
                self._fixed.clear()
            self._fixed[config.name] = config, cwd, identity
        return identity
