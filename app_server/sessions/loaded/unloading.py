"""Unloading quiet threads: those without subscribers that do nothing.

Source: docs/wire.md, "Threads"; docs/config.md, "Threads".
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio

from app_server.sessions.loaded.threads import LoadedThreads
from app_server.turns.clients import ClientPort
from protocol.threads.notifications import ThreadClosedNotification, ThreadStatusChangedNotification
from protocol.threads.thread import NotLoadedThreadStatus

SWEEP_S = 5.0
"""Seconds by which a thread may be unloaded later than its delay."""

if TYPE_CHECKING:
    from app_server.sessions.session import ThreadSession


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
        self.clients.broadcast(
            ThreadStatusChangedNotification(thread_id=thread_id, status=NotLoadedThreadStatus())
        )
        self.clients.broadcast(ThreadClosedNotification(thread_id=thread_id))
