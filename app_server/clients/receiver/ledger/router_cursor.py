"""How far the router's stream was answered, so that a new connection goes on from there.

Source: docs/receiver.md, "The ledger".
"""

import sqlite3

from app_server.clients.receiver.ledger.ledger_file import LedgerFile

SCHEMA = """
CREATE TABLE cursor (one INTEGER PRIMARY KEY CHECK (one = 1), value TEXT NOT NULL);
"""


class RouterCursor:
    """The one cursor of a ledger; its text means something to the router alone."""

    def __init__(self, file: LedgerFile) -> None:
        self._file = file

    async def read(self) -> str | None:
        """Return the cursor behind which everything was acknowledged; None before the first.

        Raises:
            LedgerBroken
        """

        def read(sql: sqlite3.Connection) -> str | None:
            row = sql.execute("SELECT value FROM cursor").fetchone()
            return None if row is None else str(row[0])

        return await self._file.run(read)

    async def move(self, cursor: str) -> None:
        """Note how far the router was answered.

        Raises:
            LedgerBroken: nothing was written.
        """

        def write(sql: sqlite3.Connection) -> None:
            sql.execute(
                "INSERT INTO cursor VALUES (1, ?)"
                " ON CONFLICT (one) DO UPDATE SET value = excluded.value",
                (cursor,),
            )

        await self._file.run(write)
