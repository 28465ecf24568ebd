"""The entries that something may still become of, in memory. No I/O."""

from collections.abc import Iterable

from app_server.signals.ledger import Entry


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
