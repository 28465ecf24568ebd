"""Which threads are loaded: finding one, putting it away, and who may do either.

Source: docs/wire.md, "Threads".
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import anyio

from app_server.config.values import Config
from app_server.threads.log.live import LogFollower
from app_server.turns.server_context import ServerContext
from app_server.turns.thread_errors import NotLoaded, SessionClosed

if TYPE_CHECKING:
    from app_server.sessions.session import ThreadSession


class LoadedThreads:
    """The loaded threads, in the order in which they were loaded."""

    def __init__(self, server: ServerContext) -> None:
        self._server = server
        self._sessions: dict[str, ThreadSession] = {}
        self._locks: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()
        self.base: Config | None = None
        """The configuration of the last reload."""
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
            await self._server.store.unload(thread)

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
