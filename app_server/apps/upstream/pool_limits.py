"""What a pool of sessions may have, and what it counts.

Source: docs/apps.md, "Sessions with the endpoint".
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

MAX_SESSIONS = 32
WAIT_S = 30.0
IDLE_S = 300.0

CloseReason: TypeAlias = Literal["idle", "reclaimed", "broken", "failed", "ended", "shutdown"]
"""`reclaimed`: another call waited for a place; `failed`: it was never open; `ended`: the local
session did."""


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """How many sessions, and how long."""

    sessions: int = MAX_SESSIONS
    """Open at a time, those included that are being opened or closed."""
    wait_s: float = WAIT_S
    """A call waits for a place at most this long."""
    idle_s: float = IDLE_S
    """A session without a call is closed after this long."""


@dataclass(slots=True)
class PoolCounters:
    """What a pool has done, for tests and debug output."""

    open: int = 0
    """Places taken now: open sessions, and those that are being opened or closed."""
    peak: int = 0
    opened: int = 0
    waiting: int = 0
    """Calls that wait for a place now."""
    refused: int = 0
    """Calls that have waited in vain."""
    fetches: int = 0
    """Inventories that were asked for."""
    closed: Counter[CloseReason] = field(default_factory=Counter)


class Timer(Protocol):
    """Something that will happen."""

    def cancel(self) -> None:
        """Let it not happen."""


class Timers(Protocol):
    """Calls something later, as an event loop does."""

    def call_later(self, delay: float, callback: Callable[[], None], /) -> Timer:
        """Call once, `delay` seconds from now."""
