"""Reads of folders that users name: beside the event loop, and without waiting for a dead disk."""

import threading
from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread

READ_S = 2.0
"""A folder on a disk that does not answer must not keep a thread from starting."""
MAX_HANGING = 4
"""Reads that hang; while there are so many, nothing is read."""

Read = TypeVar("Read")


class FolderReads:
    """Runs reads in worker threads, and abandons the ones that hang."""

    def __init__(self, *, read_s: float = READ_S, max_hanging: int = MAX_HANGING) -> None:
        self.read_s = read_s
        """Seconds after which a read is abandoned."""
        self.max_hanging = max_hanging
        """While so many reads hang, none is begun."""
        self._hanging: set[int] = set()
        self._begun: set[int] = set()
        self._count = 0
        self._lock = threading.Lock()

    @property
    def hanging(self) -> int:
        """Reads that hang."""
        return len(self._hanging)

    async def read(self, read: Callable[[], Read]) -> Read | None:
        """Return the result of `read`; None if it takes too long, or is not begun.

        What `read` raises comes out.
        """
        if self.hanging >= self.max_hanging:
            return None
        self._count += 1
        number = self._count
        with anyio.move_on_after(self.read_s):
            return await anyio.to_thread.run_sync(self._run, number, read, abandon_on_cancel=True)
        with self._lock:
            self._hanging |= self._begun & {number}
        return None

    def _run(self, number: int, read: Callable[[], Read]) -> Read:
        with self._lock:
            self._begun.add(number)
        try:
            return read()
        finally:
            with self._lock:
                self._begun.discard(number)
                self._hanging.discard(number)
