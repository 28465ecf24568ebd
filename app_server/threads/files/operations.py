"""The operations of a home, in a SQLite file that all its servers share. Blocking.

Each server that has opened it holds a lock file; the system frees that when the server dies, and
whoever is sent one of its operations again takes that over.
Source: docs/sending_again.md, "Ledger".
"""

import logging
import secrets
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import anyio.to_thread

from app_server.runtime.files.sqlite import (
    as_disk_failures,
    connect,
    identity,
    is_damage,
    is_obstructed,
    set_aside,
    version_of,
)
from app_server.threads.files.locks import LockBusy, WriterLock, known_holder
from app_server.threads.operations import KEEP_MS, MAX_KEPT, Operation

logger = logging.getLogger(__name__)

SCHEMA_VERSION = 1
_SCHEMA = f"""
CREATE TABLE operations (number INTEGER PRIMARY KEY AUTOINCREMENT, id UNIQUE, method, digest,
    at_ms, holder, is_done, answer);
CREATE INDEX by_time ON operations (at_ms);
PRAGMA user_version = {SCHEMA_VERSION};
"""
_FIND = "SELECT id, method, digest, at_ms, holder, is_done, answer FROM operations WHERE id = ?"


def operations_folder(home: Path) -> Path:
    """Return where the operations of a home are or would be."""
    return home / "operations"


class FileOperations:
    """The file of the ledger; it is made with the first operation."""

    def __init__(self, home: Path) -> None:
        self._folder = operations_folder(home)

    async def open(self) -> "FileOperationLedger":
        """Open the ledger, or begin it; see OperationStore.open."""
        return await anyio.to_thread.run_sync(FileOperationLedger, self._folder)


class FileOperationLedger:
    """One SQLite file; safe to call from any worker thread."""

    def __init__(self, folder: Path, *, max_kept: int = MAX_KEPT) -> None:
        """Open the ledger, or begin it; the newest `max_kept` operations are kept.

        Raises:
            OSError: the file cannot be used, or is of a newer version.
        """
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _remove_stale(folder)
        self.own_id = secrets.token_hex(8)
        """The id of this server."""
        self._folder = folder
        self._path = folder / "ledger.sqlite3"
        self._max_kept = max_kept
        self._lock = threading.Lock()
        self._living = WriterLock(folder / f"{self.own_id}.lock")
        try:
            with _failures():
                self._open()
        except BaseException:
            self._living.release()
            raise

    def _open(self) -> None:
        try:
            self._database = self._opened()
        except (sqlite3.Error, UnicodeDecodeError) as exc:
            if not is_damage(exc, self._path) and not is_obstructed(self._path):
                raise
            self._set_aside(exc)
            self._database = self._opened()
        self._file = identity(self._path)

    def _opened(self) -> sqlite3.Connection:
        database = connect(self._path, synchronous="FULL", autocommit=True)
        try:
            database.execute("BEGIN IMMEDIATE")
            version = version_of(database)
            if version == 0:
                for statement in _SCHEMA.split(";")[:-1]:
                    database.execute(statement)
            elif version != SCHEMA_VERSION:
                raise OSError(f"the ledger of operations has version {version}")
            database.execute("COMMIT")
        except BaseException:
            database.close()
            raise
        return database

    def _set_aside(self, damage: Exception) -> None:
        kept = set_aside(self._path)
        logger.error(
            "the ledger of operations is damaged (%s); it is kept as %s, and another one begins: "
            "requests of before count as new when they are sent again",
            damage,
            kept,
        )

    def begin(self, operation: Operation) -> Operation | None:
        """Note an operation, unless there is one of its id; see OperationLedger.begin."""
        with self._writing() as database:
            database.execute(
                "DELETE FROM operations WHERE at_ms <= ?", (operation.at_ms - KEEP_MS,)
            )
            row = database.execute(_FIND, (operation.id,)).fetchone()
            if row is not None:
                return _operation(row)
            database.execute(
                "DELETE FROM operations WHERE number <= (SELECT number FROM operations "
                "ORDER BY number DESC LIMIT 1 OFFSET ?)",
                (self._max_kept - 1,),
            )
            database.execute(
                "INSERT INTO operations (id, method, digest, at_ms, holder, is_done) "
                "VALUES (?, ?, ?, ?, ?, 0)",
                (
                    operation.id,
                    operation.method,
                    operation.digest,
                    operation.at_ms,
                    operation.holder,
                ),
            )
            return None

    def finish(self, operation_id: str, answer: str | None) -> None:
        """Note that an operation is done; see OperationLedger.finish."""
        with self._writing() as database:
            database.execute(
                "UPDATE operations SET is_done = 1, answer = ? WHERE id = ?",
                (answer, operation_id),
            )

    def forget(self, operation_id: str) -> None:
        """Forget an operation that was refused; see OperationLedger.forget."""
        with self._writing() as database:
            database.execute("DELETE FROM operations WHERE id = ?", (operation_id,))

    def take_over(self, operation: Operation) -> bool:
        """Become the holder of an operation; see OperationLedger.take_over."""
        with self._writing() as database:
            taken = database.execute(
                "UPDATE operations SET holder = ? WHERE id = ? AND holder = ? AND is_done = 0",
                (self.own_id, operation.id, operation.holder),
            )
            return taken.rowcount == 1

    def is_living(self, holder: str) -> bool:
        """Whether the server still runs that holds an operation."""
        return known_holder(self._folder / f"{holder}.lock") is not None

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()
        with suppress(OSError):
            self._living.release()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Give the file for one transaction; a damaged one fails it, and another one begins."""
        with self._lock, _failures():
            if identity(self._path) != self._file:
                # Another server has set it aside.
                self._database.close()
                self._open()
            try:
                self._database.execute("BEGIN IMMEDIATE")
                try:
                    yield self._database
                    self._database.execute("COMMIT")
                except BaseException:
                    with suppress(sqlite3.Error):
                        self._database.execute("ROLLBACK")
                    raise
            except (sqlite3.Error, UnicodeDecodeError) as exc:
                if is_damage(exc, self._path):
                    self._database.close()
                    self._set_aside(exc)
                    self._open()
                raise


def _operation(row: tuple[str, str, str, int, str, int, str | None]) -> Operation:
    operation_id, method, digest, at_ms, holder, is_done, answer = row
    return Operation(operation_id, method, digest, at_ms, holder, bool(is_done), answer)


def _remove_stale(folder: Path) -> None:
    """Remove the lock files of servers that were killed."""
    for path in folder.glob("*.lock"):
        with suppress(LockBusy, OSError):
            WriterLock(path).release()


def _failures() -> AbstractContextManager[None]:
    return as_disk_failures(OSError)
