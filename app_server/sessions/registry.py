"""The loaded threads: starting, loading, finding, unloading.

Source: docs/wire.md, "Threads".
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from enum import Enum
from weakref import WeakValueDictionary

import anyio
import anyio.abc

from app_server.config.values import Config
from app_server.extension.registration import ContributionContext
from app_server.mcp.catalog.config import read_mcp_settings
from app_server.mcp.tools.calls import BYTES_PER_TOKEN, DEFAULT_MODEL_BYTES
from app_server.sessions.compaction_settings import (
    UNKNOWN_MODEL_WINDOW,
    compaction_limit,
    read_compact_prompt,
)
from app_server.sessions.errors import SessionClosed
from app_server.sessions.ports import SessionPorts
from app_server.sessions.session import ThreadSession
from app_server.threads.log.forking import ForkPoint
from app_server.threads.log.live import LogClosed
from app_server.threads.log.queue import Plan, Result
from app_server.threads.log.state import ThreadState
from app_server.threads.store import ThreadArchived, ThreadExists, ThreadNotFound
from app_server.turns.model.prompt import INTERRUPTED, message, outputs_for_open_calls
from app_server.turns.model.providers import read_providers
from app_server.turns.run import SessionSettings
from protocol.rollout import (
    ArchivedChanged,
    HistoryAppended,
    Record,
    Settings,
    SettingsChanged,
    ThreadCreated,
    TurnCompleted,
)
from protocol.threads import (
    NotLoadedThreadStatus,
    ThreadClosedNotification,
    ThreadStatusChangedNotification,
)

logger = logging.getLogger(__name__)

SWEEP_S = 30.0


class NotLoaded(Exception):
    """The thread is not in memory."""


class ThreadIdTaken(Exception):
    """The client chose an id under which another thread was started."""


class Start(Enum):
    """What a start did."""

    CREATED = "created"
    FOUND = "found"
    """The same request had been here before, and the thread is loaded."""
    LOADED = "loaded"
    """The same request had been here before, and the thread was loaded again."""


class Sessions:
    """All loaded threads, in the order in which they were loaded."""

    def __init__(
        self, ports: SessionPorts, tasks: anyio.abc.TaskGroup, unload_delay_s: float
    ) -> None:
        """`tasks` owns whatever the threads do."""
        self._ports = ports
        self._tasks = tasks
        self._unload_delay_s = unload_delay_s
        self._sessions: dict[str, ThreadSession] = {}
        self._locks: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()
        self._unload_delays: dict[str, float] = {}
        """Of threads that have one of their own."""
        self._quiet_since: dict[str, float] = {}
        self._draining = False
        self._base: Config | None = None
        """Of the last reload."""

    def __iter__(self) -> Iterator[ThreadSession]:
        return iter(list(self._sessions.values()))

    def find(self, thread_id: str) -> ThreadSession | None:
        """Return a loaded thread, or None."""
        return self._sessions.get(thread_id)

    def get(self, thread_id: str) -> ThreadSession:
        """Return a loaded thread.

        Raises:
            NotLoaded: it is not in memory.
        """
        session = self._sessions.get(thread_id)
        if session is None:
            raise NotLoaded(thread_id)
        return session

    async def writable(self, thread_id: str) -> ThreadSession:
        """Return a loaded thread, for a request that writes to it.

        Raises:
            ThreadBusy: another process has loaded it.
            NotLoaded: nobody has.
        """
        if thread_id not in self._sessions:
            await self._ports.store.require_free(thread_id)
        return self.get(thread_id)

    async def start(self, created: ThreadCreated, config: Config) -> ThreadSession:
        """Create a thread of a new id and load it; raises what `start_once` does."""
        session, _ = await self.start_once(created, config)
        return session

    async def start_once(
        self, created: ThreadCreated, config: Config
    ) -> tuple[ThreadSession, Start]:
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
        self._require_open()
        base = self._base
        mcp, settings = read_mcp_settings(config), await _session_settings(config)
        async with self._lock(created.thread_id):
            if self.find(created.thread_id) is not None:
                return await self._start_again(created, config), Start.FOUND
            try:
                thread = await self._ports.store.create(created)
            except ThreadExists:
                return await self._start_again(created, config), Start.LOADED
            session = ThreadSession(thread, config, mcp, settings, self._ports, self._tasks)
            return await self._open(session, base), Start.CREATED

    async def _start_again(self, created: ThreadCreated, config: Config) -> ThreadSession:
        session = self.find(created.thread_id)
        if session is None:
            before = (await self._ports.store.read(created.thread_id)).created
        else:
            before = session.thread.state.created
        if created.request_digest is None or created.request_digest != before.request_digest:
            raise ThreadIdTaken(created.thread_id)

        async def configure(state: ThreadState) -> tuple[Config, Settings]:
            if state.archived:
                raise ThreadArchived(state.id)
            return config, state.settings

        return await self._load(created.thread_id, configure)

    async def fork(
        self, created: ThreadCreated, config: Config, source_id: str, point: ForkPoint
    ) -> ThreadSession:
        """Create a thread from what another one's turns have written, and load it.

        A turn that is copied while it runs is closed as interrupted.

        Raises:
            InvalidThreadId, ThreadNotFound, TurnNotFound, TurnInProgress: see ThreadStore.fork.
            ConfigError, RequiredServersFailed, SessionClosed, OSError: see `start`.
        """
        self._require_open()
        base = self._base
        mcp, settings = read_mcp_settings(config), await _session_settings(config)
        async with self._lock(created.thread_id):
            thread = await self._ports.store.fork(source_id, point, created)
            try:
                await thread.append(*self._repairs(thread.state, thread.state.settings))
            except BaseException:
                await self._ports.store.unload(thread)
                raise
            session = ThreadSession(thread, config, mcp, settings, self._ports, self._tasks)
            return await self._open(session, base)

    async def load(
        self,
        thread_id: str,
        configure: Callable[[ThreadState], Awaitable[tuple[Config, Settings]]],
    ) -> ThreadSession:
        """Load a stored thread, or return it if it is loaded already.

        `configure` gives the configuration and the settings for a thread that has to be loaded. A
        turn that was cut off by a crash is closed as interrupted.

        Raises:
            InvalidThreadId, ThreadNotFound, ThreadBusy: see ThreadStore.load.
            SessionClosed, RequiredServersFailed, OSError: see `start`.
        """
        async with self.loaded(thread_id, configure) as session:
            return session

    @asynccontextmanager
    async def loaded(
        self,
        thread_id: str,
        configure: Callable[[ThreadState], Awaitable[tuple[Config, Settings]]],
    ) -> AsyncIterator[ThreadSession]:
        """Load a stored thread, or find it loaded; it is not put away while the context lasts.

        See `load`.
        """
        async with self._lock(thread_id):
            yield await self._load(thread_id, configure)

    async def _load(
        self,
        thread_id: str,
        configure: Callable[[ThreadState], Awaitable[tuple[Config, Settings]]],
    ) -> ThreadSession:
        if (session := self.find(thread_id)) is not None:
            if not session.closed:
                self._quiet_since.pop(thread_id, None)
                return session
            await self._put_away(session)
        self._require_open()
        base = self._base
        thread = await self._ports.store.load(thread_id)
        try:
            config, settings = await configure(thread.state)
            await thread.append(*self._repairs(thread.state, settings))
            mcp, session_settings = read_mcp_settings(config), await _session_settings(config)
        except BaseException:
            await self._ports.store.unload(thread)
            raise
        session = ThreadSession(thread, config, mcp, session_settings, self._ports, self._tasks)
        return await self._open(session, base)

    def _repairs(self, state: ThreadState, settings: Settings) -> list[Record]:
        at_ms = self._ports.clock.now_ms()
        records: list[Record] = []
        if (turn := state.open_turn) is not None:
            items = [*outputs_for_open_calls(state.history), message("developer", INTERRUPTED)]
            records.append(HistoryAppended(at_ms=at_ms, items=items))
            records.append(TurnCompleted(at_ms=at_ms, turn_id=turn.id, status="interrupted"))
        if settings != state.settings:
            records.append(SettingsChanged(at_ms=at_ms, settings=settings))
        return records

    async def change_queue(self, thread_id: str, plan: Plan[Result]) -> tuple[Result, bool]:
        """Change the queue of a thread, loaded or not; see ThreadQueue.change.

        A thread that is not loaded stays so: its queue goes on when somebody resumes it.

        Raises:
            InvalidThreadId, ThreadNotFound, ThreadBusy: see ThreadStore.load.
            ThreadArchived: it is put away.
            QueueRefusal, OSError: nothing was changed.
        """
        while True:
            session = self.find(thread_id)
            if session is not None and not session.closed:
                with suppress(SessionClosed):
                    return await session.queue.change(plan)
            async with self._lock(thread_id):
                if (session := self.find(thread_id)) is None:
                    return await self._change_stored_queue(thread_id, plan)
                if session.closed:
                    await self._put_away(session)

    async def _change_stored_queue(self, thread_id: str, plan: Plan[Result]) -> tuple[Result, bool]:
        outcome: list[tuple[Result, bool]] = []

        def amend(state: ThreadState) -> Sequence[Record]:
            if state.archived:
                raise ThreadArchived(thread_id)
            records, result = plan(state.queue)
            outcome.append((result, bool(records)))
            return records

        await self._ports.store.amend(thread_id, amend)
        return outcome[0]

    async def _open(self, session: ThreadSession, base: Config | None) -> ThreadSession:
        self._sessions[session.thread.id] = session
        self._ports.clients.open_stream(session.thread.id)
        if self._base is not None and self._base is not base:
            # There was a reload after the thread's configuration had been read.
            session.mcp.reload(self._base)
        try:
            await session.mcp.start(self._tasks)
        except BaseException:
            await self._put_away(session)
            raise
        return session

    async def change(
        self, thread_id: str, decide: Callable[[ThreadState], Sequence[Record]]
    ) -> tuple[ThreadState, Sequence[Record]]:
        """Add what `decide` makes of a thread's state to its log, whether it is loaded or not.

        Returns the state after it, and what was added. What `decide` raises comes out, and nothing
        was added.

        Raises:
            InvalidThreadId, ThreadNotFound, ThreadBusy, OSError: see ThreadStore.change_by.
        """
        session = self.find(thread_id)
        if session is not None and not session.closed:
            with suppress(LogClosed):
                added = await session.thread.change(decide)
                return session.thread.state, added
        # Nobody loads the thread, or puts it away, meanwhile.
        async with self._lock(thread_id):
            session = self.find(thread_id)
            if session is None:
                return await self._ports.store.change_by(thread_id, decide)
            added = await session.thread.change(decide)
            return session.thread.state, added

    async def archive(self, thread_id: str, record: ArchivedChanged) -> bool:
        """Write that a thread is archived, then stop it and put it away.

        Returns whether it was loaded.

        Raises:
            InvalidThreadId, ThreadNotFound, ThreadBusy: see ThreadStore.change.
            OSError: the disk refused; a loaded thread stays so, and its turn goes on.
        """
        session = self.find(thread_id)
        if session is not None and session.thread.ephemeral:
            raise ThreadNotFound(thread_id)
        # Before the lock: a start holds it, and may wait for servers that this stops.
        is_written = session is not None and await session.close(record)
        async with self._lock(thread_id):
            found = self.find(thread_id)
            if found is not None and (found is session or not is_written):
                is_written = await found.close(record) or is_written
                await self._put_away(found)
            if not is_written:
                await self._ports.store.change(thread_id, record)
        return session is not None or found is not None

    async def refresh_extensions(self, base: Config) -> None:
        """Let extensions look anew at what they register; bounded, and a failure is only logged."""
        demanded = {} if base.requirements is None else base.requirements.document
        context = ContributionContext("discover", base.document, None, demanded)
        await self._ports.extensions.refresh(context)
        for session in list(self):
            await session.mcp.prepare_reload()

    def reload_servers(self, base: Config) -> None:
        """Reconcile the MCP servers of every thread with a configuration; never waits."""
        self._base = base
        for session in self:
            session.mcp.reload(base)

    async def unload(self, thread_id: str) -> bool:
        """Stop a thread's turn and servers and put it away; False if it was not loaded."""
        session = self._sessions.get(thread_id)
        if session is None:
            return False
        # Before the lock: a start holds it, and may wait for servers that this stops.
        await session.close()
        async with self._lock(thread_id):
            if self._sessions.get(thread_id) is session:
                await self._put_away(session)
        return True

    async def delete(self, thread_id: str) -> bool:
        """Remove a stored thread for good; whether it was loaded, and had to be put away first.

        Raises:
            InvalidThreadId, ThreadNotFound, ThreadBusy, OSError: see ThreadStore.delete.
        """
        if (session := self._sessions.get(thread_id)) is not None:
            await session.close()
        async with self._lock(thread_id):
            if (session := self._sessions.get(thread_id)) is not None:
                await self._put_away(session)
            await self._ports.store.delete(thread_id)
        return session is not None

    async def _put_away(self, session: ThreadSession) -> None:
        thread = session.thread
        with anyio.CancelScope(shield=True):
            await session.close()
            self._sessions.pop(thread.id)
            self._ports.clients.close_stream(thread.id)
            self._quiet_since.pop(thread.id, None)
            self._unload_delays.pop(thread.id, None)
            await self._ports.store.unload(thread)

    def _lock(self, thread_id: str) -> anyio.Lock:
        """Held while a thread is loaded or put away, so that the one never meets the other."""
        return self._locks.setdefault(thread_id, anyio.Lock())

    async def run(self) -> None:
        """Unload threads that nobody listens to and that do nothing, until cancelled."""
        while True:
            await anyio.sleep(SWEEP_S)
            await self.sweep(anyio.current_time())

    async def sweep(self, now_s: float) -> None:
        """Unload what has been quiet for its unload delay."""
        for session in self:
            thread_id = session.thread.id
            delay_s = self._unload_delays.get(thread_id, self._unload_delay_s)
            if not self._is_quiet(session):
                self._quiet_since.pop(thread_id, None)
            elif now_s - self._quiet_since.setdefault(thread_id, now_s) >= delay_s:
                await self.unload_quiet(thread_id)

    def set_unload_delay(self, thread_id: str, delay_s: float) -> None:
        """Give a loaded thread a delay of its own, for as long as it stays loaded."""
        if thread_id in self._sessions:
            self._unload_delays[thread_id] = delay_s

    @property
    def quiet(self) -> list[str]:
        """The threads that were quiet at the last sweep, the longest quiet ones first."""
        return sorted(self._quiet_since, key=self._quiet_since.__getitem__)

    def _is_quiet(self, session: ThreadSession) -> bool:
        wanted = self._ports.clients.has_listeners(session.thread.id)
        return session.slot.idle.is_set() and session.publisher.began and not wanted

    async def unload_quiet(self, thread_id: str) -> None:
        """Unload a thread if it is still quiet, and tell every client."""
        session = self.find(thread_id)
        if session is None or not self._is_quiet(session):
            return
        await self.unload(thread_id)
        self._ports.clients.broadcast(
            ThreadStatusChangedNotification(thread_id=thread_id, status=NotLoadedThreadStatus())
        )
        self._ports.clients.broadcast(ThreadClosedNotification(thread_id=thread_id))

    def _require_open(self) -> None:
        if self._draining:
            raise SessionClosed

    async def drain(self) -> None:
        """Accept no more threads and turns, and wait for the running turns to end."""
        self._draining = True
        for session in self:
            session.slot.draining = True
        for session in self:
            await session.slot.idle.wait()

    async def aclose(self) -> None:
        """Interrupt what runs, write every end, and unload everything."""
        self._draining = True
        for session in self:
            session.slot.draining = True
        async with anyio.create_task_group() as tasks:
            for session in self:
                tasks.start_soon(self.unload, session.thread.id)


async def _session_settings(config: Config) -> SessionSettings:
    view = config.view()
    tokens = view.integer("tool_output_token_limit")
    window = view.integer("model_context_window")
    return SessionSettings(
        providers=read_providers(config),
        context_window=UNKNOWN_MODEL_WINDOW if window is None else window,
        compact_at=compaction_limit(view),
        compact_prompt=await read_compact_prompt(view),
        output_limit_bytes=(
            DEFAULT_MODEL_BYTES if tokens is None else int(tokens * BYTES_PER_TOKEN)
        ),
    )
