"""Where the repository of a new thread stands.

Source: docs/threads.md, "Git".
"""

import threading
from pathlib import Path

import anyio
import anyio.to_thread

from app_server.host.repository import RepositoryState, read_repository
from protocol.threads import GitInfo

READ_S = 2.0
"""A folder on a disk that does not answer must not keep a thread from starting."""
MAX_HANGING = 4
"""Reads that hang; while there are so many, nothing is read."""


class GitInfoReader:
    """Reads repositories beside the event loop."""

    def __init__(self) -> None:
        self._hanging: set[int] = set()
        self._begun: set[int] = set()
        self._count = 0
        self._lock = threading.Lock()

    @property
    def hanging(self) -> int:
        """How many reads hang."""
        return len(self._hanging)

    async def read(self, cwd: str) -> GitInfo | None:
        """Say where the repository that a folder is in stands; None when nothing is known in 2 s.

        A read that hangs is left to itself.
        """
        if self.hanging >= MAX_HANGING:
            return None
        self._count += 1
        number = self._count
        with anyio.move_on_after(READ_S):
            state = await anyio.to_thread.run_sync(
                self._read, number, Path(cwd), abandon_on_cancel=True
            )
            if state is not None:
                return GitInfo(sha=state.sha, branch=state.branch, origin_url=state.origin_url)
            return None
        with self._lock:
            self._hanging |= self._begun & {number}
        return None

    def _read(self, number: int, folder: Path) -> RepositoryState | None:
        with self._lock:
            self._begun.add(number)
        try:
            return read_repository(folder)
        finally:
            with self._lock:
                self._begun.discard(number)
                self._hanging.discard(number)
