"""Whom a signal is for: a thread by its id, by its working directory or by its name."""

from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal, TypeAlias

from app_server.sessions.registry import Sessions
from app_server.threads.failures import ThreadNotFound
from app_server.threads.rows import ThreadQuery
from app_server.threads.store import ThreadStore
from protocol.signals.delivery import (
    DirectorySignalTarget,
    NameSignalTarget,
    SignalTarget,
    ThreadSignalTarget,
)

RecipientState: TypeAlias = Literal["idle", "active", "notLoaded"]


class NoRecipient(Exception):
    """No thread can take the signal."""

    def __init__(self, code: str, state: Literal["archived", "unknown"], text: str) -> None:
        super().__init__(text)
        self.code = code
        self.state = state


@dataclass(frozen=True, slots=True)
class Recipient:
    """A thread that can be given a signal."""

    thread_id: str
    state: RecipientState


class Recipients:
    """All threads, loaded or not."""

    def __init__(self, store: ThreadStore, sessions: Sessions) -> None:
        self._store = store
        self._sessions = sessions

    async def find(self, target: SignalTarget) -> Recipient:
        """Find the thread that is meant.

        Raises:
            NoRecipient
            OSError: the disk refused.
        """
        match target:
            case ThreadSignalTarget():
                return await self._by_id(target.thread_id)
            case DirectorySignalTarget():
                return await self._by_cwd(target.cwd)
            case NameSignalTarget():
                return await self._by_name(target.name)

    async def _by_id(self, thread_id: str) -> Recipient:
        found = self._recipient(thread_id)
        if found.state != "notLoaded":
            return found
        try:
            archived = (await self._store.lists.find(thread_id)).archived
        except ThreadNotFound:
            raise NoRecipient(
                "threadNotFound", "unknown", f"thread not found: {thread_id}"
            ) from None
        if archived:
            text = f"thread {thread_id} is archived; unarchive it first"
            raise NoRecipient("threadArchived", "archived", text)
        return found

    async def _by_cwd(self, cwd: str) -> Recipient:
        cwd = str(PurePath(cwd))
        threads = [session.log for session in self._sessions]
        at_work = [thread for thread in threads if thread.state.settings.cwd == cwd]
        if at_work:
            newest = max(at_work, key=lambda thread: thread.state.recency_at_ms)
            return self._recipient(newest.id)
        query = ThreadQuery(limit=1, sort_key="recency_at_ms", cwds=[cwd])
        rows = (await self._store.lists.page(query)).rows
        if not rows:
            raise NoRecipient(
                "threadNotFound",
                "unknown",
                f"no thread works in {cwd}: start one there, or choose another by its id or its "
                "name",
            )
        return Recipient(rows[0].id, "notLoaded")

    async def _by_name(self, name: str) -> Recipient:
        rows = (await self._store.lists.page(ThreadQuery(limit=2, name=name))).rows
        if not rows:
            raise NoRecipient("threadNotFound", "unknown", f"no thread has the name {name!r}")
        if len(rows) > 1:
            text = f"several threads have the name {name!r}; give threadId"
            raise NoRecipient("ambiguousTarget", "unknown", text)
        return self._recipient(rows[0].id)

    def _recipient(self, thread_id: str) -> Recipient:
        session = self._sessions.find(thread_id)
        if session is None or session.slot.closed:
            return Recipient(thread_id, "notLoaded")
        return Recipient(thread_id, "idle" if session.slot.active_turn_id is None else "active")
