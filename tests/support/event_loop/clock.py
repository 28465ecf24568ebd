"""The clock of a test's event loop: time limits are reached without waiting for them."""

import asyncio

import pytest


class LoopClock:
    """Can be put forward until the test ends. Make it in the test, whose loop must run.

    All that is waited for with a deadline comes nearer to it: begin a wait for what must happen
    after the clock was put forward, or give it more time than that.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._ahead_s = 0.0
        self._loop = asyncio.get_running_loop()
        read = self._loop.time
        monkeypatch.setattr(self._loop, "time", lambda: read() + self._ahead_s)

    def put_forward(self, by_s: float) -> None:
        """Let so many seconds pass at once."""
        self._ahead_s += by_s
        # The loop looks at its clock when something happens.
        self._loop.call_soon(lambda: None)
