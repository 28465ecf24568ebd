"""Blocking work on files in worker threads: a bounded number at once, and stopped when not wanted.

Source: docs/tools.md, "Host methods".
"""

import os
import threading
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread

T = TypeVar("T")

MAX_AT_ONCE = 8
"""Of one server; what comes then waits for its turn."""


class PathRefused(Exception):
    """Refused request about a path; the text says why."""


def refuse_database(
    path: str | Path, found: os.stat_result, in_use: frozenset[tuple[int, int]]
) -> None:
    """Refuse a file of a database that the server has open (`runtime/files/open_databases.py`).

    Raises:
        PathRefused: it is one.
    """
    if (found.st_dev, found.st_ino) in in_use:
        raise PathRefused(
            f"path `{path}` is a database that this server has open: "
            "copy it when the server has stopped"
        )


class Stopped(Exception):
    """The result is not awaited any more."""


class Stop:
    """A flag that stops work in a thread whose result is not awaited any more."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        """Have the work end at its next check."""
        self._event.set()

    def check(self) -> None:
        """Go on, or raise Stopped. Work calls this at least once a file and once a MiB."""
        if self._event.is_set():
            raise Stopped


class FileWork:
    """Runs blocking functions for one server."""

    def __init__(self) -> None:
        self._limiter = anyio.CapacityLimiter(MAX_AT_ONCE)

    async def run(self, work: Callable[[Stop], T]) -> T:
        """Run `work` in a thread and return its result; cancelling sets its Stop.

        Raises:
            Exception: whatever `work` raises.
        """
        stop = Stop()
        try:
            return await anyio.to_thread.run_sync(
                work, stop, abandon_on_cancel=True, limiter=self._limiter
            )
        finally:
            stop.set()


class Slots:
    """Bounded concurrency for each owner; work beyond the bound waits."""

    def __init__(self, each: int) -> None:
        """`each` is the number for one owner."""
        self._each = each
        self._free: dict[Hashable, anyio.Semaphore] = {}

    async def take(self, owner: Hashable) -> None:
        """Take a slot; waits for one."""
        await self._free.setdefault(owner, anyio.Semaphore(self._each)).acquire()

    def give(self, owner: Hashable) -> None:
        """Give a slot back."""
        slots = self._free[owner]
        slots.release()
        if slots.value == self._each:
            del self._free[owner]
