"""Group commit: what is written to the ledger at the same time is one transaction."""

import anyio
import anyio.to_thread

from app_server.signals.ledger import Entry, Ledger


class GroupCommit:
    """Writes entries in groups, in the order of the calls."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._waiting: dict[int, list[Entry]] = {}
        self._next = 0
        self._writing = anyio.Lock()

    async def write(self, *entries: Entry) -> None:
        """Return when the entries are on disk. Cancelling waits for a write that has begun.

        Raises:
            OSError: the disk refused; nothing of this call was written.
        """
        ticket, self._next = self._next, self._next + 1
        self._waiting[ticket] = list(entries)
        try:
            async with self._writing:
                if ticket not in self._waiting:
                    return
                group, self._waiting = self._waiting, {}
                with anyio.CancelScope(shield=True):
                    await self._write(group, ticket)
        finally:
            self._waiting.pop(ticket, None)

    async def _write(self, group: dict[int, list[Entry]], own: int) -> None:
        entries = [entry for waiting in group.values() for entry in waiting]
        try:
            await anyio.to_thread.run_sync(self._ledger.put, entries)
        except Exception:
            # Whoever waits behind tries again by itself, and hears of its own failure.
            del group[own]
            self._waiting = group | self._waiting
            raise
