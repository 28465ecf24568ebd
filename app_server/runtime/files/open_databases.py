"""SQLite files that this process has open: closing any descriptor of one drops its locks.

The locks of a process on a file go with any descriptor of it that the process closes. Other
processes then take it for nobody's, and remove the log with what was committed. This module imports
no SQLite.
Source: fcntl(2), "Advisory record locking"; https://sqlite.org/howtocorrupt.html, section 2.2.
"""

from contextlib import suppress
from pathlib import Path

COMPANIONS = ("", "-wal", "-shm")
"""Suffixes of a database file itself and of the files that SQLite keeps beside it."""

_databases: set[Path] = set()
"""Databases opened since the process began: a handful."""


def register_open(database: Path) -> None:
    """Register a database as open in this process from now on."""
    _databases.add(database.absolute())


def files_in_use() -> frozenset[tuple[int, int]]:
    """Return device and inode of every file of the databases that are open. Blocks for a moment."""
    found = set[tuple[int, int]]()
    for database in list(_databases):
        for suffix in COMPANIONS:
            with suppress(OSError):
                file = Path(f"{database}{suffix}").stat()
                found.add((file.st_dev, file.st_ino))
    return frozenset(found)
