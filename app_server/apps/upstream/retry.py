"""When a failed attempt may be repeated. No I/O.

Source: docs/apps.md, "Retries".
"""

from collections.abc import Sequence

COOLDOWNS_S: Sequence[float] = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""After the second failure in a row, the third, and so on; the last one for all that follow."""


def cooldown_s(failures: int) -> float | None:
    """Return how long to wait after this many failures in a row; None: repeat it at once."""
    if failures < 2:
        return None
    return COOLDOWNS_S[min(failures - 2, len(COOLDOWNS_S) - 1)]
