"""SQLite files of this program: private to their owner, in WAL mode. Everything here blocks.

Source: https://sqlite.org/wal.html.
"""

import errno
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Literal, TypeAlias

from app_server.runtime.files.open_databases import COMPANIONS, register_open

BUSY_S = 10.0
"""Seconds that a statement waits for the transaction of another process."""

MAX_SET_ASIDE = 100
"""Damaged files of one name that are kept under other names."""

_ERRNO = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_PERM: errno.EACCES,
    sqlite3.SQLITE_READONLY: errno.EROFS,
    sqlite3.SQLITE_CANTOPEN: errno.EACCES,
    sqlite3.SQLITE_BUSY: errno.EBUSY,
}


_DAMAGE = {
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_FORMAT,
    # A table that is missing, and rows that break the rules by which they were written.
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_MISMATCH,
}


Failure: TypeAlias = sqlite3.Error | UnicodeDecodeError
"""Exceptions of a SQLite file: Python reads names in a damaged schema as UTF-8 too."""


def is_damage(error: Failure, path: Path) -> bool:
    """Whether the contents of a file are damaged; False when it cannot be used now (locked, EIO).

    For files whose statements are right: one of an unknown table counts as damage. A row that
    breaks a constraint does where the rows of the file break one too.
    Source: https://sqlite.org/rescode.html, https://sqlite.org/pragma.html#pragma_integrity_check.
    """
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        # Text that is no UTF-8; Python finds that, and gives no code.
        return isinstance(error, sqlite3.OperationalError | UnicodeDecodeError)
    if code == sqlite3.SQLITE_READONLY:
        # The system would let us write: a byte in the file says that we must not.
        return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    if code & 0xFF == sqlite3.SQLITE_CONSTRAINT:
        return _breaks_its_rules(path)
    return code == sqlite3.SQLITE_IOERR_SHORT_READ or code & 0xFF in _DAMAGE


def damaged(problem: str) -> sqlite3.DatabaseError:
    """Make the error of a file in which the caller has found something wrong; see `is_damage`."""
    error = sqlite3.DatabaseError(problem)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


def check_whole(database: sqlite3.Connection) -> None:
    """Read every page, and compare each index with its table.

    Raises:
        sqlite3.DatabaseError: see `is_damage`; with what is wrong first.
    """
    (problem,) = database.execute("PRAGMA integrity_check(1)").fetchone()
    if problem != "ok":
        raise damaged(" ".join(str(problem).split()))


def _breaks_its_rules(path: Path) -> bool:
    try:
        with closing(connect_to_read(path)) as database:
            check_whole(database)
    except (sqlite3.Error, UnicodeDecodeError) as exc:
        return is_damage(exc, path)
    return False


def problem_of(
    path: Path,
    version: int,
    check_rows: Callable[[sqlite3.Connection], None] = lambda _: None,
) -> str | None:
    """Say why a file cannot be used, having read all of it; None when it can. Nothing is written.

    `check_rows` raises where a row is wrong; see `damaged`.
    """
    try:
        with closing(connect_to_read(path)) as database:
            found = abs(version_of(database))
            if found != version:
                return f"it is of version {found}, not {version}"
            check_whole(database)
            check_rows(database)
    except (sqlite3.Error, UnicodeDecodeError) as exc:
        return str(exc)
    return None


def identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode of a file, which another one in its place has not; None without."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def set_aside(path: Path) -> Path:
    """Rename a database to NAME.damaged, with a number if that is taken.

    Its companions go with it. Returns the new path.

    Raises:
        OSError: it cannot be renamed.
    """
    for number in range(MAX_SET_ASIDE):
        kept = path.with_name(f"{path.name}.damaged{f'-{number}' if number else ''}")
        if not os.path.lexists(kept):
            break
    else:
        raise OSError(errno.EEXIST, f"{MAX_SET_ASIDE} damaged ones are kept already", str(path))
    # The database last: a crash in between leaves what is set aside again.
    for suffix in reversed(COMPANIONS):
        with suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(kept.with_name(kept.name + suffix))
    return kept


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
    register_open(path)
    database = sqlite3.connect(
        path,
        timeout=busy_s,
        isolation_level=None if autocommit else "DEFERRED",
        check_same_thread=False,
    )
    with _closed_on_failure(database):
        # First, as a new file is written when it becomes one in WAL mode.
        database.execute(f"PRAGMA synchronous = {synchronous}")
        database.execute("PRAGMA journal_mode = WAL")
    return database


def connect_to_read(path: Path) -> sqlite3.Connection:
    """Open a file that is there, without ever writing to it.

    Raises:
        sqlite3.Error: it cannot be read.
    """
    register_open(path)
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
    before_replacing: Callable[[], None] = lambda: None,
    autocommit: bool = False,
) -> sqlite3.Connection:
    """Open a database that can be rebuilt from its sources.

    The version of a file is less than 0 while its tables are filled: `-version` after it was made
    here, until the caller sets `version`. One of another version, one that is no database and one
    that this user cannot read are replaced; `before_replacing` may raise to prevent that of another
    version. What is in its place and no file is set aside.

    Raises:
        sqlite3.OperationalError: locked, full or read-only; the file is as it was.
        OSError: the file cannot be removed; and what `before_replacing` raises.
    """
    try:
        database = connect(path, synchronous="OFF", autocommit=autocommit)
        with _closed_on_failure(database):
            if abs(version_of(database)) == version:
                database.execute("PRAGMA synchronous = NORMAL")
                return database
            if _is_new(database):
                return _filled(database, schema, version)
        database.close()
        before_replacing()
    except (sqlite3.Error, UnicodeDecodeError) as exc:
        if not is_damage(exc, path) and not is_obstructed(path):
            # Nothing is wrong with what is in it.
            raise
    remove_database(path)
    database = connect(path, synchronous="OFF", autocommit=autocommit)
    with _closed_on_failure(database):
        return _filled(database, schema, version)


def remove_database(path: Path) -> None:
    """Remove a database and its companions; anything but a file is set aside instead.

    Raises:
        OSError: something cannot be removed.
    """
    for suffix in reversed(COMPANIONS):
        file = path.with_name(path.name + suffix)
        with suppress(FileNotFoundError):
            if stat.S_ISDIR(file.lstat().st_mode):
                set_aside(file)
            else:
                file.unlink()


def is_obstructed(path: Path) -> bool:
    """Whether something is in the place of a database, or of a companion, that cannot be opened."""
    for suffix in COMPANIONS:
        file = path.with_name(path.name + suffix)
        if file.is_dir() or (os.path.lexists(file) and not os.access(file, os.R_OK | os.W_OK)):
            # A disk that takes no writes is no damage.
            return os.access(path.parent, os.W_OK)
    return False


def _is_new(database: sqlite3.Connection) -> bool:
    (changes,) = database.execute("PRAGMA schema_version").fetchone()
    return bool(changes == 0)


def _filled(database: sqlite3.Connection, schema: str, version: int) -> sqlite3.Connection:
    # Nothing has waited for the disk so far: tables that a loss of power takes are made again.
    database.executescript(f"BEGIN; {schema} PRAGMA user_version = {-version}; COMMIT;")
    database.execute("PRAGMA synchronous = NORMAL")
    return database


@contextmanager
def _closed_on_failure(database: sqlite3.Connection) -> Iterator[None]:
    try:
        yield
    except BaseException:
        database.close()
        raise


@contextmanager
def as_disk_failures(make: Callable[[int, str], OSError]) -> Iterator[None]:
    """Raise failures of SQLite as OSError, with an errno and a text."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as exc:
        raise make(errno_of(exc), str(exc)) from exc


def errno_of(error: Failure) -> int:
    """Return the errno of a disk that is nearest to a failure of SQLite."""
    # The low byte is the kind of failure, the others are details.
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_IOERR) & 0xFF
    return _ERRNO.get(code, errno.EIO)


def _keep_private(path: Path) -> None:
    """Make a private file for SQLite, or restrict the modes of it and its companions.

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
            found = file.stat().st_mode
            if stat.S_ISREG(found) and stat.S_IMODE(found) != 0o600:
                file.chmod(0o600)
