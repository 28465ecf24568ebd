"""A SQLite file for its owner alone, in which a commit outlives the machine. All of this blocks.

Source: docs/receiver.md, "The ledger".
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from app_server.runtime.sqlite import connect

BUSY_S = 5.0
"""For another process to finish its transaction."""


@contextmanager
def open_file(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a file or make it; workers may use the connection, one at a time.

    Raises:
        OSError, sqlite3.Error: it cannot be used.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The other side forgets what was acknowledged.
    with closing(connect(path, synchronous="FULL", busy_s=BUSY_S, autocommit=True)) as connection:
        yield connection


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Do several things or none."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def read_number(connection: sqlite3.Connection, query: str, *values: object) -> int:
    """Return the one number that a query gives."""
    return int(connection.execute(query, values).fetchone()[0])
