"""Dead letters: content that is no signal, kept for inspection.

Source: docs/receiver.md, "Envelopes".
"""

import sqlite3
from collections.abc import Sequence

from app_server.clients.receiver.ledger.entries import LedgerLimits
from app_server.clients.receiver.ledger.sqlite_file import SqliteFile

SCHEMA = """
CREATE TABLE dead_letters (
    place INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    reason TEXT NOT NULL,
    content BLOB NOT NULL
);
"""


class DeadLetters:
    """The newest `max_dead` of one ledger, each cut at `max_dead_bytes`."""

    def __init__(self, file: SqliteFile, limits: LedgerLimits) -> None:
        self._file = file
        self._limits = limits

    async def add(self, reason: str, content: bytes, now: int) -> None:
        """Keep what is no signal. `now` in Unix seconds.

        Raises:
            LedgerBroken: nothing was written.
        """

        def write(sql: sqlite3.Connection) -> None:
            sql.execute(
                "INSERT INTO dead_letters (at, reason, content) VALUES (?, ?, ?)",
                (now, reason, content[: self._limits.max_dead_bytes]),
            )
            sql.execute(
                "DELETE FROM dead_letters WHERE place <= (SELECT max(place) FROM dead_letters) - ?",
                (self._limits.max_dead,),
            )

        await self._file.run(write)

    async def all(self) -> Sequence[tuple[int, str, bytes]]:
        """Return when, why and what, the oldest first.

        Raises:
            LedgerBroken
        """
        query = "SELECT at, reason, content FROM dead_letters ORDER BY place"
        return await self._file.run(lambda sql: list(sql.execute(query)))
