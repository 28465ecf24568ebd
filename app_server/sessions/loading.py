"""Creating and loading threads: from a log, or from a request, to a session that is known.

`LoadedThreads` says which threads are loaded, and who may add or remove one.
Source: docs/wire.md, "Threads".
"""

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import anyio
import anyio.abc
import anyio.to_thread

from app_server.config.values import Config
from app_server.mcp.catalog.config import McpSettings
from app_server.mcp.catalog.tables import read_mcp_settings
from app_server.models.prompt.request import INTERRUPTED, message, outputs_for_open_calls
from app_server.permissions.sandbox.policy import effective_policy_of
from app_server.runtime.loader import Lazy, load
from app_server.sessions.agents_files import read_agents_settings
from app_server.threads.failures import ThreadArchived, ThreadBusy, ThreadExists
from app_server.threads.log.live import LiveThread, LogFollower
from app_server.threads.log.reading import ForkPoint
from app_server.threads.log.state import ThreadState
from app_server.turns.server_context import ServerContext
from app_server.turns.session_settings import SessionSettings, read_session_settings
from app_server.turns.slot import NotLoaded, SessionClosed, ThreadIdTaken
from protocol.log.rollout import (
    FilesChanging,
    HistoryAppended,
    ItemCompleted,
    ItemEnded,
    NameChanged,
    Record,
    Settings,
    SettingsChanged,
    ThreadCreated,
    TurnCompleted,
)
from protocol.turns.items import CommandExecutionThreadItem, FileChangeThreadItem

if TYPE_CHECKING:
    from app_server.sessions.session import ThreadSession

logger = logging.getLogger(__name__)


class LoadedThreads:
    """The loaded threads, in the order in which they were loaded."""

    def __init__(self, server: ServerContext) -> None:
        self._server = server
        self._sessions: dict[str, ThreadSession] = {}
        self._locks: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()
        self.base: Config | None = None
        """The configuration of the last reload."""
        self.loaded = anyio.Event()
        """Set when a thread was loaded; who waits for that puts another one in its place."""
        self.log_followers: list[LogFollower] = []
        """Objects that follow the logs of all loaded threads."""
        self.draining = False
        """Whether no thread is loaded any more."""

    def __iter__(self) -> "Iterator[ThreadSession]":
        return iter(list(self._sessions.values()))

    @property
    def ids(self) -> list[str]:
        """Of all loaded threads, in the order in which they were loaded."""
        return list(self._sessions)

    def find(self, thread_id: str) -> "ThreadSession | None":
        """Return a loaded thread, or None."""
        return self._sessions.get(thread_id)

    def get(self, thread_id: str) -> "ThreadSession":
        """Return a loaded thread.

        Raises:
            NotLoaded: it is not in memory.
        """
        session = self._sessions.get(thread_id)
        if session is None:
            raise NotLoaded(thread_id)
        return session

    async def writable(self, thread_id: str) -> "ThreadSession":
        """Return a loaded thread, for a request that writes to it.

        Raises:
            ThreadBusy: another process has loaded it.
            NotLoaded: nobody has.
        """
        if thread_id not in self._sessions:
            await self._server.store.require_free(thread_id)
        return self.get(thread_id)

    def add(self, session: "ThreadSession") -> None:
        """Make a thread known that has just been loaded."""
        self._sessions[session.log.id] = session
        session.log.followers = self.log_followers
        self._server.clients.open_stream(session.log.id)
        self.loaded.set()

    async def unload(self, thread_id: str) -> bool:
        """Stop a thread's turn and servers and release it; False if somebody else did, or had."""
        session = self._sessions.get(thread_id)
        if session is None:
            return False
        # Before the lock: a start holds it, and may wait for servers that this stops.
        await session.close()
        async with self.lock(thread_id):
            is_loaded = self._sessions.get(thread_id) is session
            if is_loaded:
                await self.release(session)
        return is_loaded

    async def release(self, session: "ThreadSession") -> None:
        """Close a thread and release its log; to be called under its `lock`."""
        thread = session.log
        with anyio.CancelScope(shield=True):
            await session.close()
            self._sessions.pop(thread.id)
            self._server.clients.close_stream(thread.id)
            # What waits goes on elsewhere: nobody asks for the thread there.
            goes_on = self.draining and thread.state.queue.next is not None
            await self._server.store.unload(thread, goes_on=goes_on)

    def lock(self, thread_id: str) -> anyio.Lock:
        """Held while a thread is loaded or unloaded, so that the one never meets the other."""
        return self._locks.setdefault(thread_id, anyio.Lock())

    def require_open(self) -> None:
        """Refuse to load threads while the server stops.

        Raises:
            SessionClosed
        """
        if self.draining:
            raise SessionClosed


NOT_KNOWN = -1
"""The exit code of a command whose end was not seen."""


class Start(Enum):
    """Outcome of a thread start."""

    CREATED = "created"
    FOUND = "found"
    """The same request had been here before, and the thread is loaded."""
    LOADED = "loaded"
    """The same request had been here before, and the thread was loaded again."""


@dataclass(slots=True)
class LockedThread:
    """A thread that is loaded, or whose log was read to load it."""

    log: LiveThread
    session: "ThreadSession | None" = None
    """None: it is not loaded."""
    base: Config | None = None
    """The configuration of the last reload before the log was read."""
    is_opened: bool = False
    """Whether `ThreadLoading.load` has taken the log over."""

    @property
    def state(self) -> ThreadState:
        """The state of the log."""
        return self.log.state


class ThreadLoading:
    """Loads threads, each one once."""

    def __init__(
        self, threads: LoadedThreads, server: ServerContext, tasks: anyio.abc.TaskGroup
    ) -> None:
        """`tasks` owns whatever the threads do."""
        self._threads = threads
        self._server = server
        self._tasks = tasks
        # With it come turns and tools, which the first answers do without.
        self._session_type = Lazy("what runs threads", _load_session_type)

    async def prepare(self) -> None:
        """Import what runs threads, so that the first one need not wait for it.

        Raises:
            LoadFailed: it cannot be imported now.
        """
        if self._session_type.value is None:
            await self._session_type.get()

    async def start_once(
        self, created: ThreadCreated, config: Config
    ) -> "tuple[ThreadSession, Start]":
        """Create a thread and load it, or load the one that the same request has created.

        Raises:
            ThreadIdTaken: there is one of this id that another request has created.
            ThreadArchived: there is one, and it was archived since.
            InvalidThreadId, ThreadBusy: see ThreadStore.create.
            ConfigError: the MCP servers cannot be read; nothing was created.
            RequiredServersFailed: the thread exists but was unloaded again.
            SessionClosed: the server is stopping.
            OSError: the disk refused.
        """
        await self.prepare()
        self._threads.require_open()
        base = self._threads.base
        mcp, settings = await self._read(config)
        async with self._threads.lock(created.thread_id):
            if self._threads.find(created.thread_id) is not None:
                return await self._start_again(created, config), Start.FOUND
            try:
                thread = await self._server.store.create(created)
            except ThreadExists:
                return await self._start_again(created, config), Start.LOADED
            session = await self._open(thread, config, mcp, settings, base, anew=True)
            return session, Start.CREATED

    async def _start_again(self, created: ThreadCreated, config: Config) -> "ThreadSession":
        session = self._threads.find(created.thread_id)
        if session is None:
            before = (await self._server.store.read(created.thread_id)).created
        else:
            before = session.log.state.created
        if created.request_digest is None or created.request_digest != before.request_digest:
            raise ThreadIdTaken(created.thread_id)
        async with self._found(created.thread_id) as found:
            if found.session is not None:
                return found.session
            if found.state.archived:
                raise ThreadArchived(found.state.id)
            return await self.load(found, config, found.state.settings)

    async def fork(
        self,
        created: ThreadCreated,
        config: Config,
        source_id: str,
        point: ForkPoint,
        name: str | None,
        *,
        anew: bool,
    ) -> "ThreadSession":
        """Create a thread from what another one's turns have written, and load it under a name.

        With `anew` its client has named roots of it; see PinnedRoots.pin.
        A turn that is copied while it runs is closed as interrupted. Where it cannot be loaded,
        nothing is left of it.

        Raises:
            InvalidThreadId, ThreadNotFound, TurnNotFound, TurnInProgress: see ThreadStore.fork.
            ConfigError, RequiredServersFailed, SessionClosed, OSError: see `start_once`.
        """
        await self.prepare()
        self._threads.require_open()
        base = self._threads.base
        mcp, settings = await self._read(config)
        async with self._threads.lock(created.thread_id):
            thread = await self._server.store.fork(source_id, point, created)
            try:
                try:
                    records = self._repairs(thread.state, thread.state.settings)
                    if name is not None:
                        records.append(NameChanged(at_ms=created.at_ms, name=name))
                    await thread.append(*records)
                except BaseException:
                    await self._server.store.unload(thread)
                    raise
                return await self._open(thread, config, mcp, settings, base, anew=anew)
            except BaseException:
                # Its client is answered that there is no fork.
                if not thread.ephemeral:
                    await self._delete(thread.id)
                raise

    async def _delete(self, thread_id: str) -> None:
        try:
            await self._server.store.delete(thread_id)
        except (OSError, ThreadBusy) as exc:
            # Another server with this home may have loaded it meanwhile.
            logger.warning("the fork %s cannot be removed: %s", thread_id, type(exc).__name__)

    @asynccontextmanager
    async def locked(self, thread_id: str) -> "AsyncIterator[LockedThread]":
        """Find a thread loaded, or read its log; nothing else loads or unloads it meanwhile.

        A log that was read is released at the end of the context, unless `load` was given it.

        Raises:
            InvalidThreadId, ThreadNotFound, ThreadBusy: see ThreadStore.load.
            SessionClosed: the server is stopping.
        """
        async with self._threads.lock(thread_id), self._found(thread_id) as found:
            yield found

    @asynccontextmanager
    async def _found(self, thread_id: str) -> "AsyncIterator[LockedThread]":
        """See `locked`; to be entered under the lock of the thread."""
        if (session := self._threads.find(thread_id)) is not None:
            if not session.slot.closed:
                session.quiet_since_s = None
                yield LockedThread(session.log, session)
                return
            await self._threads.release(session)
        await self.prepare()
        self._threads.require_open()
        base = self._threads.base
        found = LockedThread(await self._server.store.load(thread_id), base=base)
        try:
            yield found
        finally:
            if not found.is_opened:
                await self._server.store.unload(found.log)

    async def load(
        self, found: "LockedThread", config: Config, settings: Settings
    ) -> "ThreadSession":
        """Load a thread whose log was read; a turn that a crash cut off is closed as interrupted.

        Raises:
            ConfigError: the MCP servers cannot be read.
            RequiredServersFailed: the thread was unloaded again.
            OSError: the disk refused.
        """
        log = found.log
        settled = await self._settled_patches(log.state)
        await log.append(*settled, *self._repairs(log.state, settings))
        mcp, session_settings = await self._read(config)
        # From here on the log is released with the session.
        found.is_opened = True
        return await self._open(log, config, mcp, session_settings, found.base)

    async def _read(self, config: Config) -> tuple[McpSettings, SessionSettings]:
        # Nothing is created, or loaded, where one of these does not fit.
        read_agents_settings(config)
        mcp = read_mcp_settings(config)
        return mcp, await read_session_settings(config, self._server.machine_paths)

    async def _settled_patches(self, state: ThreadState) -> list[Record]:
        """Return the items of patches that a process died with."""
        left = list(state.half_written.values())
        if not left:
            return []
        recover = await load(_recover)
        items = [await anyio.to_thread.run_sync(recover, record) for record in left]
        at_ms = self._server.clock.now_ms()
        for item in items:
            item.completed_at_ms = at_ms
        return [
            ItemCompleted(at_ms=at_ms, turn_id=record.turn_id, item=item)
            for record, item in zip(left, items, strict=True)
        ]

    def _repairs(self, state: ThreadState, settings: Settings) -> list[Record]:
        at_ms = self._server.clock.now_ms()
        # What ran when the server ended was ended with it.
        records: list[Record] = [
            ItemEnded(at_ms=at_ms, turn_id=left.turn_id, item=_given_up(left.item, at_ms))
            for left in state.unfinished.values()
        ]
        if (turn := state.open_turn) is not None:
            items = [*outputs_for_open_calls(state.history), message("developer", INTERRUPTED)]
            records.append(HistoryAppended(at_ms=at_ms, items=items))
            records.append(TurnCompleted(at_ms=at_ms, turn_id=turn.id, status="interrupted"))
        if settings != state.settings:
            records.append(SettingsChanged(at_ms=at_ms, settings=settings))
        return records

    async def _open(
        self,
        thread: LiveThread,
        config: Config,
        mcp: McpSettings,
        settings: SessionSettings,
        base: Config | None,
        *,
        anew: bool = False,
    ) -> "ThreadSession":
        make = self._session_type.value
        assert make is not None, "prepare() comes first"
        try:
            # Who loads a stored thread names none of its places: they stay as they are pinned.
            sandbox_policy = effective_policy_of(thread.state.settings, settings.machine_paths)
            await self._server.commands.pin_roots(sandbox_policy, anew=anew)
            session = make(thread, config, mcp, settings, self._server, self._tasks)
        except BaseException:
            await self._server.store.unload(thread)
            raise
        self._threads.add(session)
        if self._threads.base is not None and self._threads.base is not base:
            # There was a reload after the thread's configuration had been read.
            session.servers.reload_later(self._threads.base)
        try:
            await session.instructions.read(session.log.state.settings)
            await session.servers.start(self._tasks)
        except BaseException:
            await self._threads.release(session)
            raise
        return session


def _recover() -> "Callable[[FilesChanging], FileChangeThreadItem]":
    from app_server.patch.write import recover

    return recover


def _session_type() -> "type[ThreadSession]":
    from app_server.sessions.session import ThreadSession

    return ThreadSession


async def _load_session_type() -> "type[ThreadSession]":
    return await load(_session_type)


def _given_up(item: CommandExecutionThreadItem, at_ms: int) -> CommandExecutionThreadItem:
    return item.model_copy(
        update={"status": "failed", "exit_code": NOT_KNOWN, "completed_at_ms": at_ms}
    )
