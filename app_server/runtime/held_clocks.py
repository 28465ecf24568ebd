"""Deadlines that do not count while somebody holds their clocks."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import anyio


class HeldClocks:
    """The deadlines of one owner; they count only while nobody holds them."""

    def __init__(self, now: Callable[[], float] = anyio.current_time) -> None:
        """`now` gives seconds of the event loop's clock."""
        self._now = now
        self._holds = 0
        self._left: dict[anyio.CancelScope, float] = {}
        """Of each scope in use: the seconds that it has left while it is held."""

    @property
    def stopped(self) -> int:
        """How many deadlines do not count at this moment."""
        return len(self._left) if self._holds else 0

    def hold(self) -> None:
        """Stop the clocks; as many `release` let them go on."""
        self._holds += 1
        if self._holds == 1:
            for scope in self._left:
                self._stop(scope)

    def release(self) -> None:
        """Take one `hold` back."""
        self._holds -= 1
        if self._holds == 0:
            for scope, left_s in self._left.items():
                scope.deadline = self._now() + left_s

    @contextmanager
    def move_on_after(self, seconds: float) -> Iterator[anyio.CancelScope]:
        """Do as `anyio.move_on_after` does, in time that nobody holds."""
        scope = anyio.CancelScope(deadline=self._now() + seconds)
        self._left[scope] = seconds
        if self._holds:
            self._stop(scope)
        try:
            with scope:
                yield scope
        finally:
            del self._left[scope]

    def _stop(self, scope: anyio.CancelScope) -> None:
        self._left[scope] = scope.deadline - self._now()
        scope.deadline = float("inf")
