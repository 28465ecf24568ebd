"""SQLite files of this program: private to their owner, in WAL mode. Everything here blocks.

Source: https://sqlite.org/wal.html.
"""

import errno
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from app_server.runtime.files.open_databases import COMPANIONS, note_open

BUSY_S = 10.0
"""How long a statement waits for the transaction of another process."""

_ERRNO = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_PERM: errno.EACCES,
    sqlite3.SQLITE_READONLY: errno.EROFS,
    sqlite3.SQLITE_CANTOPEN: errno.EACCES,
    sqlite3.SQLITE_BUSY: errno.EBUSY,
}


def connect(
    path: Path,
    *,
    synchronous: Literal["OFF", "NORMAL", "FULL"],
    busy_s: float = BUSY_S,
    autocommit: bool = False,
) -> sqlite3.Connection:
    """Open a file or make it; any thread may use the connection, one at a time.

    A commit survives the death of the process, and with `synchronous` FULL that of the machine;
    with OFF the file may not survive that. With `autocommit` transactions begin with a BEGIN of
    the caller's only.

    Raises:
        sqlite3.Error: it cannot be used.
    """
    _keep_private(path)
    note_open(path)
    database = sqlite3.connect(
        path,
        timeout=busy_s,
        isolation_level=None if autocommit else "DEFERRED",
        check_same_thread=False,
    )
    try:
        # First, as a new file is written when it becomes one in WAL mode.
        database.execute(f"PRAGMA synchronous = {synchronous}")
        database.execute("PRAGMA journal_mode = WAL")
    except BaseException:
        database.close()
        raise
    return database


def connect_to_read(path: Path) -> sqlite3.Connection:
    """Open a file that is there, without ever writing to it.

    Raises:
        sqlite3.Error: it cannot be read.
    """
    note_open(path)
    name = path.absolute().as_uri()
    database = sqlite3.connect(f"{name}?mode=ro", uri=True, timeout=BUSY_S)
    try:
        version_of(database)
    except sqlite3.OperationalError:
        # On a disk that takes no writes there may be nobody else who changes it either.
        database.close()
        return sqlite3.connect(f"{name}?mode=ro&immutable=1", uri=True)
    except BaseException:
        database.close()
        raise
    return database


def version_of(database: sqlite3.Connection) -> int:
    """Return the version of the tables; 0 if there are none yet."""
    (version,) = database.execute("PRAGMA user_version").fetchone()
    return int(version)


def open_rebuildable(
    path: Path,
    schema: str,
    version: int,
    *,
    additions: str = "",
    before_replacing: Callable[[], None] = lambda: None,
    autocommit: bool = False,
) -> sqlite3.Connection:
    """Open a file of tables that can be made again from what they were made of.

    The version of a file is less than 0 while its tables are filled: `-version` after it was made
    here, until the caller sets `version`. One of another version, or that is no database, is
    replaced; `before_replacing` may raise to prevent that. `additions` are statements for a file
    that is kept, which may have been made before they were part of the schema.

    Raises:
        sqlite3.OperationalError: locked, full or read-only; the file is as it was.
        OSError: the file cannot be removed; and what `before_replacing` raises.
    """
    try:
        database = connect(path, synchronous="OFF", autocommit=autocommit)
        if abs(version_of(database)) == version:
            database.execute("PRAGMA synchronous = NORMAL")
            database.executescript(additions)
            return database
        if _is_new(database):
            return _filled(database, schema, version)
        database.close()
    except sqlite3.OperationalError:
        # Nothing is wrong with what is in it.
        raise
    except sqlite3.DatabaseError:
        pass
    before_replacing()
    for suffix in COMPANIONS:
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    return _filled(connect(path, synchronous="OFF", autocommit=autocommit), schema, version)


def _is_new(database: sqlite3.Connection) -> bool:
    (changes,) = database.execute("PRAGMA schema_version").fetchone()
    return bool(changes == 0)


def _filled(database: sqlite3.Connection, schema: str, version: int) -> sqlite3.Connection:
    # Nothing has waited for the disk so far: tables that a loss of power takes are made again.
    database.executescript(f"BEGIN; {schema} PRAGMA user_version = {-version}; COMMIT;")
    database.execute("PRAGMA synchronous = NORMAL")
    return database


@contextmanager
def as_disk_failures(make: Callable[[int, str], OSError]) -> Iterator[None]:
    """Raise failures of SQLite as those of a disk, made of an errno and a text."""
    try:
        yield
    except sqlite3.Error as exc:
        # The low byte is the kind of failure, the others are details.
        code = getattr(exc, "sqlite_errorcode", sqlite3.SQLITE_IOERR) & 0xFF
        raise make(_ERRNO.get(code, errno.EIO), str(exc)) from exc


def _keep_private(path: Path) -> None:
    """Make a file for SQLite, or take away what others may do with it and with its companions.

    What cannot be changed stays as it is: opening it says why. A file that is there is not opened:
    closing it would take the locks of all connections that this process has to it (fcntl(2)), and
    with them what they commit after another process has removed the log.
    """
    with suppress(OSError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    # SQLite gives its companions the rights of the file.
    for suffix in COMPANIONS:
        file = path.with_name(path.name + suffix)
        with suppress(OSError):
            if file.stat().st_mode & 0o077:
                file.chmod(0o600)
