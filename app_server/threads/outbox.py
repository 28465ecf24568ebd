"""The outbox of notifications: what is to be sent, and the door to it.

Source: docs/notifications.md, "Outbox".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Literal, Protocol, TypeAlias

from protocol.cursors import InvalidCursor, parse_cursor, render_cursor

MAX_WAITING = 10_000
"""Entries of an outbox that wait to be delivered; what comes then is dropped."""
EXPIRE_MS = 3 * 24 * 3600 * 1000
"""Milliseconds for which an entry is tried."""
KEEP_DELIVERED_MS = 24 * 3600 * 1000
"""Milliseconds for which the id of a delivered entry is kept."""
KEEP_DEAD_MS = 30 * 24 * 3600 * 1000
CLAIM_MS = 25_000
"""Milliseconds for which only the server that put or claimed an entry tries it."""
MAX_ENDED = 100_000
"""Delivered and dead entries that are kept, newest first."""
EXPIRED = "not delivered within 3 days"

OutboxState: TypeAlias = Literal["waiting", "delivered", "dead"]
STATES: Sequence[OutboxState] = ("waiting", "delivered", "dead")


class OutboxFailed(OSError):
    """The outbox cannot be read or written; the text says why."""


@dataclass(frozen=True, slots=True)
class OutboxEntry:
    """One notification for one target. Times are Unix milliseconds."""

    target: str
    """Digest of what the settings name; see `Target.id`."""
    id: str
    """Follows from the event, so that one event is one entry however often it is put."""
    label: str
    """The target in words, without what may be secret."""
    thread_id: str
    event: str
    subject: str
    """Id of the turn, question or signal that the event is about."""
    body: str
    """JSON; empty once it was delivered."""
    run: str
    """Id of the run of the server that put it."""
    created_at_ms: int
    is_open: bool = False
    """Whether a question waits of which `resolved` was not put yet."""
    state: OutboxState = "waiting"
    attempts: int = 0
    next_at_ms: int = 0
    """Before that it is not tried."""
    ended_at_ms: int | None = None
    error: str | None = None
    """Failure of the last attempt."""
    number: int | None = None
    """The place among all; given by the outbox."""

    @property
    def key(self) -> tuple[str, str]:
        """Target and id."""
        return self.target, self.id

    @property
    def outcome(self) -> tuple[OutboxState, int, int, int | None, str | None, str]:
        """What an attempt changes: `state` to `error`, and the body, which ends with delivery."""
        body = "" if self.state == "delivered" else self.body
        return self.state, self.attempts, self.next_at_ms, self.ended_at_ms, self.error, body


COLUMNS = [column.name for column in fields(OutboxEntry) if column.name != "number"]
"""Of the table that keeps entries, beside their numbers."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Which entries a server takes to deliver; no other one does for CLAIM_MS."""

    run: str
    targets: Sequence[str]
    now_ms: int
    limit: int


@dataclass(frozen=True, slots=True)
class Claimed:
    """Entries to deliver; the first of its thread and target, each."""

    entries: Sequence[OutboxEntry]
    next_at_ms: int | None
    """Time of the first entry that is due later; None: none is."""


@dataclass(frozen=True, slots=True)
class OutboxPage:
    """One page, newest first; `next_cursor` is None at the end."""

    entries: Sequence[OutboxEntry]
    next_cursor: str | None


def page_of_outbox(found: Sequence[OutboxEntry], limit: int) -> OutboxPage:
    """Return a page of at most `limit` entries; one more of `found` says that there are others."""
    entries = found[:limit]
    more = len(found) > limit
    return OutboxPage(entries, render_cursor("notifications", entries[-1].number) if more else None)


def parse_outbox_cursor(cursor: str) -> int:
    """Return the number of the entry at a cursor.

    Raises:
        InvalidCursor: no page of ours has given it out.
    """
    match parse_cursor(cursor):
        case ["notifications", int(number)] if abs(number) < 1 << 63:
            return number
    raise InvalidCursor(cursor)


class NotificationOutbox(Protocol):
    """Notifications of all servers of a store. Blocks; for any thread.

    Every method raises OSError where the outbox cannot be read or written; then nothing was
    changed.
    """

    def put(self, entries: Sequence[OutboxEntry], run: str, at_ms: int) -> int:
        """Insert entries, and note that all events of a run up to `at_ms` are there; all or none.

        An entry that is there stays as it is. A `resolved` closes the question of its subject.
        Returns how many were dropped, as MAX_WAITING others wait.
        """

    def advance(self, settled: Sequence[OutboxEntry], claim: Claim) -> Claimed:
        """Write the outcome of attempts, and claim the entries that are due.

        An entry is due when it is the first that waits of its thread and target, its time has come
        and no other server has claimed it.
        """

    def disable(self, target: str, at_ms: int, reason: str) -> None:
        """End a target: all that waits for it is dead, and what is put later is passed over."""

    def enable(self, target: str) -> None:
        """Enable a receiver again that was disabled."""

    def disabled(self) -> Mapping[str, str]:
        """Return the reason of each disabled target."""

    def runs(self) -> Mapping[str, int]:
        """Return of each run up to when its events are in the outbox."""

    def end_run(self, run: str) -> None:
        """Forget a run of which nothing is missing, and what it has claimed."""

    def open_questions(self) -> Sequence[OutboxEntry]:
        """Return entries about questions of which `resolved` was not put yet."""

    def counts(self) -> Mapping[OutboxState, int]:
        """Count the entries by state; states without any are left out."""

    def page(self, state: OutboxState | None, cursor: str | None, limit: int) -> OutboxPage:
        """Return one page, newest first.

        Raises:
            InvalidCursor
        """

    def forget_old(self, now_ms: int) -> int:
        """End what has waited too long, remove what has been over for long; return how many."""

    def close(self) -> None:
        """Close the outbox."""


class OutboxStore(Protocol):
    """The outbox of a store, which may not be there yet."""

    async def exists(self) -> bool:
        """Whether any server has begun it.

        Raises:
            OSError: that cannot be seen.
        """

    async def open(self) -> NotificationOutbox:
        """Open the outbox, or begin it.

        Raises:
            OSError: it cannot be used, or is of a newer version.
            LoadFailed: its code cannot be imported now.
        """
