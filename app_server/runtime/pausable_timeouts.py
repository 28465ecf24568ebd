"""Timeouts that can be paused, such as while a question to the user is open."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import anyio


class PausableTimeouts:
    """The timeouts of one owner; they run unless they are paused."""

    def __init__(self, now: Callable[[], float] = anyio.current_time) -> None:
        """`now` gives seconds of the event loop's clock."""
        self._now = now
        self._pauses = 0
        self._left: dict[anyio.CancelScope, float] = {}
        """Of each scope in use: the seconds that it has left while it is paused."""

    @property
    def paused(self) -> int:
        """Number of timeouts that are paused now."""
        return len(self._left) if self._pauses else 0

    def pause(self) -> None:
        """Pause all; they run again after as many `resume`."""
        self._pauses += 1
        if self._pauses == 1:
            for scope in self._left:
                self._stop(scope)

    def resume(self) -> None:
        """Take one `pause` back."""
        self._pauses -= 1
        if self._pauses == 0:
            for scope, left_s in self._left.items():
                scope.deadline = self._now() + left_s

    @contextmanager
    def move_on_after(self, seconds: float) -> Iterator[anyio.CancelScope]:
        """Do as `anyio.move_on_after` does, not counting the time of pauses."""
        scope = self.begin(seconds)
        try:
            with scope:
                yield scope
        finally:
            self.end(scope)

    def begin(self, seconds: float) -> anyio.CancelScope:
        """Return a scope with such a timeout, which has to be entered soon, and ended."""
        scope = anyio.CancelScope(deadline=self._now() + seconds)
        self._left[scope] = seconds
        if self._pauses:
            self._stop(scope)
        return scope

    def end(self, scope: anyio.CancelScope) -> None:
        """Take a timeout away, once its scope was left."""
        del self._left[scope]

    def _stop(self, scope: anyio.CancelScope) -> None:
        self._left[scope] = scope.deadline - self._now()
        scope.deadline = float("inf")
