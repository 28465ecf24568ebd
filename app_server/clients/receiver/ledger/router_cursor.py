"""Cursor of the router's stream, from which a new connection resumes.

Source: docs/receiver.md, "The ledger".
"""

from app_server.clients.receiver.ledger.sqlite_file import SqliteFile

SCHEMA = """
CREATE TABLE cursor (one INTEGER PRIMARY KEY CHECK (one = 1), value TEXT NOT NULL);
"""
_MOVE = "INSERT INTO cursor VALUES (1, ?) ON CONFLICT (one) DO UPDATE SET value = excluded.value"


class RouterCursor:
    """The one cursor of a ledger; its text means something to the router alone."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    async def read(self) -> str | None:
        """Return the cursor behind which everything was acknowledged; None before the first.

        Raises:
            LedgerBroken
        """
        query = "SELECT value FROM cursor"
        row = await self._file.run(lambda sql: sql.execute(query).fetchone())
        return None if row is None else str(row[0])

    async def move(self, cursor: str) -> None:
        """Note how far the router was answered.

        Raises:
            LedgerBroken: nothing was written.
        """
        await self._file.run(lambda sql: sql.execute(_MOVE, (cursor,)))
