"""The steps of entries: each is in the ledger before anybody is notified of it.

Source: docs/signals.md, "Stages".
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import anyio
import anyio.to_thread

from app_server.runtime.clock import Clock
from app_server.sessions.turn import Turn
from app_server.threads.ledger import Entry, SignalLedger
from app_server.threads.log.state import SignalState, ThreadState
from protocol.signals.delivery import SignalReceipt


class OpenEntries:
    """Open entries by thread, in the order of the ledger."""

    def __init__(self) -> None:
        self._by_thread: dict[str, dict[tuple[str, str], Entry]] = {}
        self._thread_of: dict[tuple[str, str], str] = {}

    def put(self, entry: Entry) -> None:
        """Insert or replace an entry; one that is over is forgotten."""
        if entry.is_open:
            self._by_thread.setdefault(entry.thread_id, {})[entry.key] = entry
            self._thread_of[entry.key] = entry.thread_id
        elif self._thread_of.pop(entry.key, None) is not None:
            entries = self._by_thread[entry.thread_id]
            del entries[entry.key]
            if not entries:
                del self._by_thread[entry.thread_id]

    def find(self, key: tuple[str, str]) -> Entry | None:
        """Return an open entry by source and id."""
        thread_id = self._thread_of.get(key)
        return None if thread_id is None else self._by_thread[thread_id][key]

    def threads(self) -> Iterable[str]:
        """Return the threads that have open entries."""
        return list(self._by_thread)

    def has(self, thread_id: str) -> bool:
        """Whether a thread has open entries."""
        return thread_id in self._by_thread

    def of(self, thread_id: str) -> list[Entry]:
        """Return a thread's open entries."""
        return list(self._by_thread.get(thread_id, {}).values())

    def waiting(self, thread_id: str) -> list[Entry]:
        """Return what a thread has still to take."""
        return [entry for entry in self.of(thread_id) if entry.stage == "accepted"]

    def unseen(self, thread_id: str) -> int:
        """Count what no model of a thread has seen."""
        return sum(entry.stage != "seen" for entry in self.of(thread_id))


@dataclass(slots=True)
class Effects:
    """Effects of changed entries outside of the ledger.

    They come once the caller has been answered, or has gone: see `ThreadDelivery.run_effects`.
    """

    receipts: list[SignalReceipt] = field(default_factory=list)
    """Receipts to send, in this order."""
    woken: list[Turn] = field(default_factory=list)
    """Turns that are to run, behind the receipts."""


class Entries:
    """Ledger entries; open ones are in memory too."""

    def __init__(self, ledger: SignalLedger, clock: Clock) -> None:
        self.open = OpenEntries()
        self._ledger = ledger
        self._commits = _GroupCommit(ledger)
        self._clock = clock

    async def load(self) -> None:
        """Take in what is open after a start."""
        for entry in await anyio.to_thread.run_sync(self._ledger.open_entries):
            self.open.put(entry)

    async def find(self, key: tuple[str, str]) -> Entry | None:
        """Return an entry by source and id."""
        found = self.open.find(key)
        if found is None:
            found = await anyio.to_thread.run_sync(self._ledger.find, *key)
        return found

    async def write(self, entries: list[Entry], effects: Effects) -> None:
        """Write entries to the ledger; their receipts are added to the effects.

        Raises:
            OSError: the disk refused; nothing has changed.
        """
        if not entries:
            return
        with anyio.CancelScope(shield=True):
            ahead = {entry.key: entry for entry in await self._commits.write(*entries)}
        for entry in entries:
            self._take_in(ahead.get(entry.key, entry), effects)

    def _take_in(self, entry: Entry, effects: Effects) -> None:
        self.open.put(entry)
        effects.receipts.append(entry.receipt())

    async def foreign_changes(self) -> Set[str]:
        """Return the threads of which another server has written or moved entries.

        Raises:
            OSError: the ledger cannot be read.
        """
        rows = await anyio.to_thread.run_sync(self._ledger.open_entries)
        seen = {entry.key: entry for entry in rows}
        known = {
            entry.key: entry for thread in self.open.threads() for entry in self.open.of(thread)
        }
        return {
            entry.thread_id
            for key, entry in (seen | known).items()
            if key not in known or _is_moved(known[key], seen.get(key))
        }

    async def take_foreign_changes(self, thread_id: str, effects: Effects) -> None:
        """Take in what other servers have written of a thread; the caller holds its lock.

        Raises:
            OSError: the ledger cannot be read.
        """
        rows = await anyio.to_thread.run_sync(self._ledger.open_entries, thread_id)
        seen = {entry.key: entry for entry in rows}
        known = {entry.key: entry for entry in self.open.of(thread_id)}
        for key in known.keys() - seen.keys():
            ended = await anyio.to_thread.run_sync(self._ledger.find, *key)
            if ended is not None:
                self._take_in(ended, effects)
        for key, entry in seen.items():
            if key not in known or _is_moved(known[key], entry):
                self._take_in(entry, effects)

    async def follow(self, state: ThreadState, effects: Effects) -> None:
        """Move a thread's entries to where its log has their signals."""
        moved = []
        for entry in self.open.of(state.id):
            place = state.signals.find(entry.key)
            if place is not None:
                changed = self._changed(entry, _as_logged(entry, place, self._clock.now_ms()))
                if changed != entry:
                    moved.append(changed)
        await self.write(moved, effects)

    async def expire(self, thread_id: str, effects: Effects) -> int | None:
        """End what has waited too long; return when the next one will have, Unix milliseconds."""
        now_ms = self._clock.now_ms()
        limited = [
            (entry, entry.expires_at_ms)
            for entry in self.open.waiting(thread_id)
            if entry.expires_at_ms is not None
        ]
        over = [entry for entry, end_ms in limited if end_ms <= now_ms]
        await self.write(
            [self._changed(entry, {"stage": "expired", "item": ""}) for entry in over], effects
        )
        return min((end_ms for _, end_ms in limited if end_ms > now_ms), default=None)

    async def fail(self, thread_id: str, code: str, text: str, effects: Effects) -> None:
        """End everything that is open in a thread."""
        changes = {"stage": "failed", "item": "", "error_code": code, "error_message": text}
        failed = [self._changed(entry, changes) for entry in self.open.of(thread_id)]
        await self.write(failed, effects)

    async def recall(self, entry: Entry, effects: Effects) -> Entry:
        """End an entry that its sender took back."""
        recalled = self._changed(entry, {"stage": "recalled", "item": ""})
        await self.write([recalled], effects)
        return recalled

    def _changed(self, entry: Entry, changes: Mapping[str, Any]) -> Entry:
        changed = replace(entry, **changes)
        if changed.stage != entry.stage:
            changed = replace(changed, at_ms=self._clock.now_ms())
        return changed


def _as_logged(entry: Entry, place: SignalState, now_ms: int) -> dict[str, Any]:
    changes: dict[str, Any] = {
        "stage": "inHistory" if place.stage in ("queued", "visible") else place.stage,
        "item": "",
        "item_id": place.item_id,
        "turn_id": place.turn_id,
    }
    if place.woke and entry.woken_at_ms is None:
        changes["woken_at_ms"] = now_ms
    if place.trouble is not None:
        text = "the turn that had the signal did not complete"
        changes |= {"error_code": place.trouble, "error_message": text}
    elif entry.error_code in ("turnFailed", "turnInterrupted"):
        changes |= {"error_code": None, "error_message": None}
    return changes


def _is_moved(known: Entry, found: Entry | None) -> bool:
    # Of an entry that was written here the number is not known.
    return found is None or replace(known, number=None) != replace(found, number=None)


class _GroupCommit:
    """Writes entries in the order of the calls; those of the same time are one transaction."""

    def __init__(self, ledger: SignalLedger) -> None:
        self._ledger = ledger
        self._waiting: dict[int, list[Entry]] = {}
        self._ahead: dict[int, list[Entry]] = {}
        self._tickets = count()
        self._writing = anyio.Lock()

    async def write(self, *entries: Entry) -> Sequence[Entry]:
        """Return when the entries are on disk. Cancelling waits for a write that has begun.

        Returns those that another server had moved further, see SignalLedger.put.

        Raises:
            OSError: the disk refused; nothing of this call was written.
        """
        ticket = next(self._tickets)
        self._waiting[ticket] = list(entries)
        try:
            async with self._writing:
                if ticket in self._waiting:
                    group, self._waiting = self._waiting, {}
                    with anyio.CancelScope(shield=True):
                        await self._write(group)
                return self._ahead.pop(ticket, ())
        finally:
            self._waiting.pop(ticket, None)
            self._ahead.pop(ticket, None)

    async def _write(self, group: dict[int, list[Entry]]) -> None:
        entries = [entry for waiting in group.values() for entry in waiting]
        try:
            ahead = await anyio.to_thread.run_sync(self._ledger.put, entries)
        except Exception:
            # Whoever waits behind tries again by itself, and gets its own error.
            self._waiting = group | self._waiting
            raise
        if ahead:
            keys = {entry.key: entry for entry in ahead}
            for ticket, waiting in group.items():
                self._ahead[ticket] = [keys[one.key] for one in waiting if one.key in keys]
