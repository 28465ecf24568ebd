"""The loaded threads as the rest of the server sees them, and changes to threads loaded or not.

Quiet threads, those without subscribers that do nothing, are unloaded after a while.
Source: docs/wire.md, "Threads"; docs/config.md, "Threads".
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio
import anyio.abc
import anyio.lowlevel

from app_server.config.values import Config
from app_server.extensions.contract.registration import ContributionContext
from app_server.sessions.loading import LoadedThreads, ThreadLoading
from app_server.threads.failures import ThreadArchived, ThreadNotFound
from app_server.threads.log.live import LogClosed
from app_server.threads.log.state import Plan, Result, ThreadState
from app_server.turns.clients import ClientPort
from app_server.turns.server_context import ServerContext
from app_server.turns.slot import SessionClosed
from protocol.log.rollout import ArchivedChanged, Record
from protocol.threads.notifications import ThreadClosedNotification, ThreadStatusChangedNotification
from protocol.threads.thread import NotLoadedThreadStatus

if TYPE_CHECKING:
    from app_server.sessions.session import ThreadSession

SWEEP_S = 5.0
"""Seconds by which a thread may be unloaded later than its delay."""


@dataclass(frozen=True, slots=True)
class QuietUnloading:
    """Unloads each thread that has been quiet for its delay."""

    loaded: LoadedThreads
    clients: ClientPort
    delay_s: float
    """Of stored threads without one of their own; that of ephemeral ones is none."""

    async def run(self) -> None:
        """Unload quiet threads, until cancelled."""
        while True:
            await anyio.sleep(SWEEP_S)
            await self.sweep(anyio.current_time())

    async def sweep(self, now_s: float) -> None:
        """Unload what has been quiet for its unload delay."""
        for session in self.loaded:
            if not self._is_quiet(session):
                session.quiet_since_s = None
                continue
            if session.quiet_since_s is None:
                session.quiet_since_s = now_s
            # A turn may have come and gone since the last sweep.
            since_s = max(session.quiet_since_s, session.slot.emptied_s)
            if now_s - since_s >= self._delay_of(session):
                await self.unload_quiet(session.log.id)

    async def last_left(self, thread_id: str) -> None:
        """Unload a thread that a client has just left, if its delay is zero."""
        session = self.loaded.find(thread_id)
        if session is not None and self._delay_of(session) == 0:
            await self.unload_quiet(thread_id)

    def _delay_of(self, session: "ThreadSession") -> float:
        if session.unload_delay_s is not None:
            return session.unload_delay_s
        return 0.0 if session.log.ephemeral else self.delay_s

    def set_delay(self, thread_id: str, delay_s: float) -> None:
        """Give a loaded thread a delay of its own, for as long as it stays loaded."""
        if (session := self.loaded.find(thread_id)) is not None:
            session.unload_delay_s = delay_s

    @property
    def quiet(self) -> list[str]:
        """The threads that were quiet at the last sweep, the longest quiet ones first."""
        since = {
            session.log.id: session.quiet_since_s
            for session in self.loaded
            if session.quiet_since_s is not None
        }
        return sorted(since, key=since.__getitem__)

    def _is_quiet(self, session: "ThreadSession") -> bool:
        if not session.slot.idle.is_set() or not session.clients.began:
            return False
        return not self.clients.has_subscribers(session.log.id) and not session.works_on

    async def unload_quiet(self, thread_id: str) -> None:
        """Unload a thread if it is still quiet, and notify every client."""
        session = self.loaded.find(thread_id)
        if session is None or not self._is_quiet(session):
            return
        if not await self.loaded.unload(thread_id):
            return
        announce_unloaded(self.clients, thread_id)


def announce_unloaded(clients: ClientPort, thread_id: str) -> None:
    """Notify every client that a thread is not in memory any more."""
    clients.broadcast(
        ThreadStatusChangedNotification(thread_id=thread_id, status=NotLoadedThreadStatus())
    )
    clients.broadcast(ThreadClosedNotification(thread_id=thread_id))


class Sessions(LoadedThreads):
    """All loaded threads, with what loads and unloads them."""

    def __init__(
        self, server: ServerContext, tasks: anyio.abc.TaskGroup, unload_delay_s: float
    ) -> None:
        """`tasks` owns whatever the threads do."""
        super().__init__(server)
        self._tasks = tasks
        self.loading = ThreadLoading(self, server, tasks)
        self.unloading = QuietUnloading(self, server.clients, unload_delay_s)

    async def change(
        self, thread_id: str, decide: Callable[[ThreadState], Sequence[Record]]
    ) -> tuple[ThreadState, Sequence[Record]]:
        """Add what `decide` makes of a thread's state to its log, whether it is loaded or not.

        Returns the state after it, and what was added. What `decide` raises comes out, and nothing
        was added.

        Raises:
            InvalidThreadId, ThreadNotFound, ThreadBusy, OSError: see ThreadStore.change.
        """
        session = self.find(thread_id)
        if session is not None and not session.slot.closed:
            with suppress(LogClosed):
                added = await session.log.change(decide)
                return session.log.state, added
        # Nobody loads the thread, or puts it away, meanwhile.
        async with self.lock(thread_id):
            session = self.find(thread_id)
            if session is None:
                return await self._server.store.change(thread_id, decide)
            added = await session.log.change(decide)
            return session.log.state, added

    async def change_queue(self, thread_id: str, plan: Plan[Result]) -> tuple[Result, bool]:
        """Change the queue of a thread, loaded or not; see ThreadQueue.change.

        A thread that is not loaded stays so: its queue goes on when somebody resumes it.

        Raises:
            InvalidThreadId, ThreadNotFound, ThreadBusy: see ThreadStore.load.
            ThreadArchived: it is archived.
            QueueRefusal, OSError: nothing was changed.
        """
        while True:
            session = self.find(thread_id)
            if session is not None and not session.slot.closed:
                with suppress(SessionClosed):
                    return await session.queue.change(plan)
            async with self.lock(thread_id):
                if (session := self.find(thread_id)) is None:
                    return await self._change_stored_queue(thread_id, plan)
                if session.slot.closed:
                    await self.release(session)

    async def _change_stored_queue(self, thread_id: str, plan: Plan[Result]) -> tuple[Result, bool]:
        outcome: list[tuple[Result, bool]] = []

        def amend(state: ThreadState) -> Sequence[Record]:
            if state.archived:
                raise ThreadArchived(thread_id)
            records, result = plan(state.queue)
            outcome.append((result, bool(records)))
            return records

        await self._server.store.change(thread_id, amend)
        return outcome[0]

    async def archive(self, thread_id: str, record: ArchivedChanged) -> bool:
        """Write that a thread is archived, then stop it and put it away.

        Returns whether it was loaded.

        Raises:
            InvalidThreadId, ThreadNotFound, ThreadBusy: see ThreadStore.change.
            OSError: the disk refused; a loaded thread stays so, and its turn goes on.
        """

        def archived_now(state: ThreadState) -> Sequence[Record]:
            if state.archived:
                raise ThreadNotFound(state.id)
            return [record]

        session = self.find(thread_id)
        if session is not None and session.log.ephemeral:
            raise ThreadNotFound(thread_id)
        # Before the lock: a start holds it, and may wait for servers that this stops.
        is_written = session is not None and await session.close(record)
        async with self.lock(thread_id):
            found = self.find(thread_id)
            if found is not None and (found is session or not is_written):
                is_written = await found.close(record) or is_written
                await self.release(found)
            if not is_written:
                await self._server.store.change(thread_id, archived_now)
        return session is not None or found is not None

    async def delete(self, thread_id: str) -> bool:
        """Remove a stored thread for good; whether it was loaded, and had to be unloaded first.

        Raises:
            InvalidThreadId, ThreadNotFound, ThreadBusy, OSError: see ThreadStore.delete.
        """
        if (session := self._sessions.get(thread_id)) is not None:
            await session.close()
        async with self.lock(thread_id):
            if (session := self._sessions.get(thread_id)) is not None:
                await self.release(session)
            await self._server.store.delete(thread_id)
        return session is not None

    async def refresh_extensions(self, base: Config) -> None:
        """Refresh the registrations of extensions; bounded, and a failure is only logged."""
        demanded = {} if base.requirements is None else base.requirements.document
        context = ContributionContext("discover", base.document, None, demanded)
        await self._server.extensions.refresh(context)
        for session in list(self):
            await session.servers.prepare_reload()

    def reload_servers(self, base: Config) -> None:
        """Reconcile the MCP servers of every thread with a configuration; never waits.

        Whoever asks a thread for its servers finds that done. Of those whom nobody asks it is done
        one after the other, with others running in between: one with 100 servers takes some ms.
        """
        self.base = base
        for session in self:
            session.servers.reload_later(base)
        self._tasks.start_soon(self._catch_up)

    async def _catch_up(self) -> None:
        for session in self:
            session.servers.catch_up()
            await anyio.lowlevel.checkpoint()

    async def follow_files(self) -> None:
        """Reconcile threads with what has changed in files: idle ones now, others in their turns.

        Whoever runs a turn looks before each model request, and takes over what was found at the
        end.
        """
        for session in self:
            await session.servers.look_at_files()
            if session.slot.turn is None:
                session.servers.take_over(with_extensions=True)

    async def drain(self) -> None:
        """Accept no more threads and turns, and wait for the running turns to end."""
        self._accept_no_more()
        for session in self:
            await session.slot.idle.wait()

    async def aclose(self) -> None:
        """Interrupt what runs, write every end, and unload everything."""
        self._accept_no_more()
        async with anyio.create_task_group() as tasks:
            for session in self:
                tasks.start_soon(self.unload, session.log.id)

    def _accept_no_more(self) -> None:
        self.draining = True
        for session in self:
            session.slot.draining = True
