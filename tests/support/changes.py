"""Waiting for what others change, until it is as a test wants it."""

from collections.abc import Callable

import anyio

from tests.support.harness import WAIT_S


class Changes:
    """Whoever changes something notes it here; whoever waits looks again after each note."""

    def __init__(self) -> None:
        self._next = anyio.Event()

    def note(self) -> None:
        """Let those who wait look again."""
        self._next.set()
        self._next = anyio.Event()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Return once something holds; TimeoutError after WAIT_S."""
        with anyio.fail_after(WAIT_S):
            while not holds():
                await self._next.wait()
