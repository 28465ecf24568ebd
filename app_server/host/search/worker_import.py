"""What a worker thread imports when it first needs it, while it goes on with other work.

Source: docs/architecture.md, "What is loaded late".
"""

import contextlib
from collections.abc import Callable
from typing import Generic, TypeVar

from app_server.runtime.loader import IMPORTER, LoadFailed, load_from_worker

T = TypeVar("T")


class WorkerImport(Generic[T]):
    """A value that is made of imports, once."""

    def __init__(self, make: Callable[[], T]) -> None:
        """`make` imports what it needs."""
        self._make = make
        self._made: list[T] = []

    @property
    def made(self) -> T | None:
        """The value, None before it is made."""
        return self._made[0] if self._made else None

    def begin(self) -> None:
        """Have it made soon, without waiting; the next use tries again what fails."""
        if not self._made:
            with contextlib.suppress(LoadFailed):
                IMPORTER.request(self._once)

    def get(self) -> T:
        """Return it; waits in a worker thread until it is made.

        Raises:
            LoadFailed: it cannot be imported now; the next use tries again.
        """
        return self._made[0] if self._made else load_from_worker(self._once)

    def _once(self) -> T:
        # The importer has one thread: nobody else is here.
        if not self._made:
            self._made.append(self._make())
        return self._made[0]
