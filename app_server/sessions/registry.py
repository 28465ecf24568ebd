"""The loaded threads as the rest of the server sees them, and changes to threads loaded or not.

Source: docs/wire.md, "Threads".
"""

from collections.abc import Callable, Sequence
from contextlib import suppress

import anyio
import anyio.abc
import anyio.lowlevel

from app_server.config.values import Config
from app_server.extensions.contract.registration import ContributionContext
from app_server.sessions.loaded.loading import ThreadLoading
from app_server.sessions.loaded.threads import LoadedThreads
from app_server.sessions.loaded.unloading import QuietUnloading
from app_server.threads.failures import ThreadArchived, ThreadNotFound
from app_server.threads.log.live import LogClosed
from app_server.threads.log.state.queue import Plan, Result
from app_server.threads.log.state.thread import ThreadState
from app_server.turns.server_context import ServerContext
from app_server.turns.thread_errors import SessionClosed
from protocol.log.rollout import ArchivedChanged, Record


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
