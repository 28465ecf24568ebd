"""How much of a call's progress clients are told, whatever its server sends.

Source: docs/mcp.md, "Calls".
"""

import time
from collections.abc import Callable

MAX_AT_ONCE = 64
"""Messages that pass one after the other; then there are PER_SECOND."""
PER_SECOND = 20
MAX_CHARS = 4096
"""Of one message."""


class ProgressRate:
    """The messages of one call; those above the rate are dropped, as a newer one says more."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """`now` is in seconds."""
        self._now = now
        self._left = float(MAX_AT_ONCE)
        self._looked_at = now()

    def lets_one_pass(self) -> bool:
        """Count one message that came now; False where it is to be dropped."""
        now = self._now()
        self._left = min(MAX_AT_ONCE, self._left + (now - self._looked_at) * PER_SECOND)
        self._looked_at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


def shortened(message: str) -> str:
    """Return a message without what is above MAX_CHARS."""
    return message if len(message) <= MAX_CHARS else f"{message[: MAX_CHARS - 1]}…"
