"""The file of a ledger, as its tables use it: one transaction at a time, in a worker thread."""

import sqlite3
import threading
from collections.abc import Callable
from typing import TypeVar

import anyio.to_thread

from app_server.clients.receiver.ledger.entries import LedgerBroken
from app_server.clients.receiver.ledger.sqlite_file import transaction

Result = TypeVar("Result")


class LedgerFile:
    """One connection to the file."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    async def run(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """Do `work`, which blocks, in one transaction; return its result.

        What `work` raises undoes the transaction.

        Raises:
            LedgerBroken: SQLite failed.
        """
        return await anyio.to_thread.run_sync(self._run, work)

    def _run(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        try:
            with self._lock, transaction(self._connection):
                return work(self._connection)
        except sqlite3.Error as exc:
            # The text may be of a statement, and holds no values.
            raise LedgerBroken(f"the ledger cannot be used: {exc}") from exc
