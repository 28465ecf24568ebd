"""The wakes of threads: as they are kept, and the door to what keeps them.

Source: docs/wakes.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Protocol

from protocol.cursors import InvalidCursor, parse_cursor, render_cursor
from protocol.signals.delivery import WakeMode, WakeState

SOURCE = "app-server wake"
"""`source` of the signals that wakes are."""

MAX_OF_THREAD = 64
"""Open wakes of one thread."""
MAX_OF_HOME = 20_000
"""Open wakes of all threads."""
MAX_FILES_OF_HOME = 256
"""Of them those that wait for a file."""
KEEP_MS = 30 * 24 * 3600 * 1000
"""Milliseconds that a wake is kept once it is over."""
MAX_OVER = 20_000
"""Wakes that are over which are kept, newest first."""

EPHEMERAL = "ephemeral "
"""Begins the place of a wake of a thread that is known to one server alone; its id follows."""


class TooManyWakes(Exception):
    """As many wakes are open as may be; the text names the bound."""


@dataclass(frozen=True, slots=True)
class StoredWake:
    """One wake. Times are Unix milliseconds."""

    id: str
    thread_id: str
    kind: str
    """`type` of its source."""
    source: str
    """JSON of its source."""
    note: str
    mode: WakeMode
    state: WakeState
    set_at_ms: int
    changed_at_ms: int
    fires: int = 0
    """How often it has fired; one signal each."""
    at_ms: int | None = None
    """When a timer fires."""
    every_ms: int | None = None
    """Between two times of a timer; None: it fires once."""
    look_at_ms: int | None = None
    """When something has to be done for it; None: an event tells, or it is over."""
    text: str = ""
    """Text for the thread that its signal still has to bring there."""
    place: str = ""
    """Of a file: the machine that it is on; of an ephemeral thread: see `EPHEMERAL`."""
    seen: str = ""
    """Of a file: what it was when the wake was set."""
    error_code: str | None = None
    error_message: str | None = None
    number: int | None = None
    """The place among all; given by the store."""

    @property
    def is_open(self) -> bool:
        """Whether something may still become of it."""
        return self.state in ("armed", "fired") or self.text != ""


COLUMNS = [column.name for column in fields(StoredWake) if column.name != "number"]
"""Of the table that keeps wakes, beside their numbers."""

OPEN = "(state IN ('armed', 'fired') OR text <> '')"
"""Says in SQL whether a wake is open."""


COUNTED = (
    f"count(CASE WHEN {OPEN} THEN 1 END), count(CASE WHEN state = 'lost' THEN 1 END), "
    f"min(CASE WHEN {OPEN} THEN look_at_ms END)"
)
"""Counts in SQL the open wakes and the lost ones, and finds the earliest time of an open one."""


@dataclass(frozen=True, slots=True)
class WakeBound:
    """How many wakes may be open: of all, or of those with a value in a column."""

    column: str | None
    values: Sequence[str]
    """That one, or none."""
    most: int
    whose: str

    def require(self, count: int) -> None:
        """Check that there is room for one more.

        Raises:
            TooManyWakes
        """
        if count >= self.most:
            raise TooManyWakes(f"at most {self.most} wakes {self.whose} may be open")


def bounds_of(wake: StoredWake) -> Sequence[WakeBound]:
    """Return the bounds that count for a wake which is to be armed."""
    bounds = [
        WakeBound("thread_id", [wake.thread_id], MAX_OF_THREAD, "of a thread"),
        WakeBound(None, [], MAX_OF_HOME, "of a home"),
    ]
    if wake.kind == "file":
        bounds.append(WakeBound("kind", ["file"], MAX_FILES_OF_HOME, "on files of a home"))
    return bounds


@dataclass(frozen=True, slots=True)
class WakePage:
    """One page, newest first; `next_cursor` is None at the end."""

    wakes: Sequence[StoredWake]
    next_cursor: str | None


def page_of_wakes(found: Sequence[StoredWake], limit: int) -> WakePage:
    """Return a page of at most `limit` wakes; one more of `found` says that there are others."""
    wakes = found[:limit]
    more = len(found) > limit
    return WakePage(wakes, render_cursor("wakes", wakes[-1].number) if more else None)


def parse_wake_cursor(cursor: str) -> int:
    """Return the number of the wake at a cursor.

    Raises:
        InvalidCursor: no page of ours has given it out.
    """
    match parse_cursor(cursor):
        case ["wakes", int(number)] if abs(number) < 1 << 63:
            return number
    raise InvalidCursor(cursor)


@dataclass(frozen=True, slots=True)
class Look:
    """What there is to do for the wakes of all threads."""

    due: Sequence[StoredWake]
    """Their time has come, the earliest first; not more than were asked for."""
    next_ms: int | None
    """The earliest time that has not come, Unix milliseconds."""
    waiting: Sequence[StoredWake]
    """Armed ones that wait for a process or a file."""


class WakeStore(Protocol):
    """The wakes of all threads. Blocks.

    What a method has written outlives the machine. Every method raises OSError where it cannot be
    read or written; nothing was changed then.
    """

    def add(self, wake: StoredWake) -> None:
        """Insert an armed wake.

        Raises:
            TooManyWakes: as many as may be are open.
        """

    def move(self, before: StoredWake, after: StoredWake) -> bool:
        """Replace a wake that is as `before` says by `after`; False: it has been moved elsewhere.

        State and number of fires say whether it is so.
        """

    def find(self, wake_id: str) -> StoredWake | None:
        """Return one wake, or None."""

    def open_of(self, thread_ids: Sequence[str]) -> Sequence[StoredWake]:
        """Return the open wakes of some threads, in their order."""

    def threads_with_open(self, after: str, limit: int) -> Sequence[str]:
        """Return ids of threads that have open wakes, in their order, behind a given one."""

    def page(
        self, thread_id: str | None, state: WakeState | None, cursor: str | None, limit: int
    ) -> WakePage:
        """Return one page, newest first.

        Raises:
            InvalidCursor
        """

    def look(self, now_ms: int, limit: int) -> Look:
        """Return what there is to do at a time; at most `limit` that are due."""

    def clock_set_back(self, now_ms: int) -> None:
        """Bring times near that the clock, which was set back, would come to much later.

        Those are the next times of repeated timers, and of whatever is tried again.
        """

    def forget_old(self, now_ms: int) -> int:
        """Remove what has been over for long, or is beyond the number kept; return how many."""
