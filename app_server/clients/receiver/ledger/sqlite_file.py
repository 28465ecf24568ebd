"""A SQLite file for its owner alone, in which a commit outlives the machine.

Source: docs/receiver.md, "The ledger".
"""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import anyio.to_thread

from app_server.runtime.files.sqlite import connect

Args = ParamSpec("Args")
Result = TypeVar("Result")

BUSY_S = 5.0
"""For another process to finish its transaction."""


class LedgerBroken(Exception):
    """The file is no ledger of this version, or cannot be used; every use of it may raise this."""


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

    async def rows(self, statement: str, *values: object) -> list[Any]:
        """Execute one statement in a transaction of its own; return its rows.

        Raises:
            LedgerBroken: SQLite failed.
        """
        return await self.run(_rows, statement, *values)

    async def run(
        self,
        work: Callable[Concatenate[sqlite3.Connection, Args], Result],
        *args: Args.args,
        **kwargs: Args.kwargs,
    ) -> Result:
        """Do `work`, which blocks, in one transaction and a worker thread; return its result.

        What `work` raises undoes the transaction.

        Raises:
            LedgerBroken: SQLite failed.
        """
        return await anyio.to_thread.run_sync(partial(self._run, work, *args, **kwargs))

    def _run(
        self,
        work: Callable[Concatenate[sqlite3.Connection, Args], Result],
        *args: Args.args,
        **kwargs: Args.kwargs,
    ) -> Result:
        try:
            with self.transaction() as sql:
                return work(sql, *args, **kwargs)
        except sqlite3.Error as exc:
            # The text may be of a statement, and holds no values.
            raise LedgerBroken(f"the ledger cannot be used: {exc}") from exc


def _rows(sql: sqlite3.Connection, statement: str, *values: object) -> list[Any]:
    return list(sql.execute(statement, values))


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
