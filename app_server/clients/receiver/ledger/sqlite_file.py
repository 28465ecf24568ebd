"""A SQLite file for its owner alone, in which a commit outlives the machine.

Source: docs/receiver.md, "The ledger".
"""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

import anyio.to_thread

from app_server.clients.receiver.ledger.entries import LedgerBroken
from app_server.runtime.files.sqlite import connect

Result = TypeVar("Result")

BUSY_S = 5.0
"""For another process to finish its transaction."""


class SqliteFile:
    """One connection to the file; any worker may use it, one at a time."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Do several things or none. Blocks.

        Raises:
            sqlite3.Error
        """
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    async def run(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """Do `work`, which blocks, in one transaction and a worker thread; return its result.

        What `work` raises undoes the transaction.

        Raises:
            LedgerBroken: SQLite failed.
        """
        return await anyio.to_thread.run_sync(self._run, work)

    def _run(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        try:
            with self.transaction() as sql:
                return work(sql)
        except sqlite3.Error as exc:
            # The text may be of a statement, and holds no values.
            raise LedgerBroken(f"the ledger cannot be used: {exc}") from exc


@contextmanager
def open_file(path: Path) -> Iterator[SqliteFile]:
    """Open a file or make it. Blocks.

    Raises:
        OSError, sqlite3.Error: it cannot be used.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The other side forgets what was acknowledged.
    with closing(connect(path, synchronous="FULL", busy_s=BUSY_S, autocommit=True)) as connection:
        yield SqliteFile(connection)


def read_number(sql: sqlite3.Connection, query: str, *values: object) -> int:
    """Return the one number that a query gives."""
    return int(sql.execute(query, values).fetchone()[0])
