"""The ledger of signals: its entries, and the door to it.

Source: docs/signals.md, "Ledger".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from app_server.threads.wakes import WakeStore
from protocol.cursors import InvalidCursor, parse_cursor, render_cursor
from protocol.signals.delivery import OPEN_STAGES, SignalError, SignalReceipt, SignalStage

LOGGED_STAGES: Sequence[SignalStage] = ("inHistory", "seen", "answered")
"""Stages for which the log of the thread decides."""


KEEP_MS = 30 * 24 * 3600 * 1000
"""Milliseconds that the id of a signal that is over is kept."""
MAX_OVER = 200_000
"""Signals that are over which are kept, newest first."""


class LedgerFailed(OSError):
    """The ledger cannot be read or written; the text says why."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One signal in the ledger. Times are Unix milliseconds."""

    source: str
    id: str
    digest: str
    """Of the signal and where it should go; another one under the same id is another signal."""
    thread_id: str
    sender: str
    item: str
    """The item of history, JSON; empty once it is in the log."""
    wakes: bool
    steers: bool
    stage: SignalStage
    recipient_state: str
    at_ms: int
    item_id: str
    expires_at_ms: int | None = None
    turn_id: str | None = None
    woken_at_ms: int | None = None
    error_code: str | None = None
    error_message: str | None = None
    number: int | None = None
    """The place among all; given by the ledger."""

    @property
    def key(self) -> tuple[str, str]:
        """Source and id of the signal."""
        return self.source, self.id

    @property
    def is_open(self) -> bool:
        """Whether something may still become of it."""
        return self.stage in OPEN_STAGES

    def receipt(self) -> SignalReceipt:
        """Show the entry as the wire has it."""
        error = None
        if self.error_code is not None:
            error = SignalError(code=self.error_code, message=self.error_message or "")
        return SignalReceipt(
            signal_id=self.id,
            source=self.source,
            thread_id=self.thread_id,
            stage=self.stage,
            item_id=self.item_id if self.stage in ("inHistory", "seen", "answered") else None,
            turn_id=self.turn_id,
            woken=self.woken_at_ms is not None,
            recipient_state=self.recipient_state,
            at=self.at_ms // 1000,
            error=error,
        )


@dataclass(frozen=True, slots=True)
class EntryPage:
    """One page, newest first; `next_cursor` is None at the end."""

    entries: Sequence[Entry]
    next_cursor: str | None


def page_of_entries(found: Sequence[Entry], limit: int) -> EntryPage:
    """Return a page of at most `limit` entries; one more of `found` says that there are others."""
    entries = found[:limit]
    more = len(found) > limit
    return EntryPage(entries, render_cursor("signals", entries[-1].number) if more else None)


def parse_entry_cursor(cursor: str) -> int:
    """Return the number of the entry at a cursor.

    Raises:
        InvalidCursor: no page of ours has given it out.
    """
    match parse_cursor(cursor):
        case ["signals", int(number)] if abs(number) < 1 << 63:
            return number
    raise InvalidCursor(cursor)


class SignalLedger(Protocol):
    """Every signal that was accepted, and how far it has come. Blocks; for any thread.

    Every method raises OSError where the ledger cannot be read or written.
    """

    @property
    def wakes(self) -> WakeStore:
        """The wakes, which are kept beside the signals."""

    def put(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Insert entries, or move those that are there; all or none.

        They outlive the machine afterwards, except for stages that can be read again from a
        thread's log: those outlive the process, and the machine a little later.
        Returns the entries that another server had moved further: those stay as they are there.
        """

    def find(self, source: str, signal_id: str) -> Entry | None:
        """Return one entry, or None."""

    def version(self) -> object:
        """Return a value that differs once another server has written."""

    def open_entries(self, thread_id: str | None = None) -> Sequence[Entry]:
        """Return the entries, perhaps of one thread, that may still change, in their order."""

    def stages(self) -> Mapping[str, int]:
        """Count the entries by stage; stages without any are left out."""

    def turns_woken_since(self, thread_id: str, source: str, at_ms: int, now_ms: int) -> int:
        """Count the turns of a thread that one source has begun since a time, up to now."""

    def page(
        self, thread_id: str | None, stage: SignalStage | None, cursor: str | None, limit: int
    ) -> EntryPage:
        """Return one page, newest first.

        Raises:
            InvalidCursor
        """

    def forget_old(self, now_ms: int) -> int:
        """Remove what has been over for long, or is beyond the number kept; return how many."""

    def close(self) -> None:
        """Close the ledger."""


class SignalStore(Protocol):
    """The ledger of a store, which may not be there yet."""

    async def exists(self) -> bool:
        """Whether any server has begun it.

        Raises:
            OSError: that cannot be seen.
        """

    async def open(self) -> SignalLedger:
        """Open the ledger, or begin it.

        Raises:
            OSError: it cannot be used, or is of a newer version.
            LoadFailed: its code cannot be imported now.
        """
