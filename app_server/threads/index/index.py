"""The index over all threads: lists and searches without opening a log. Everything here blocks.

The index is a copy: whatever it says can be made again from the rollouts. A row is marked `open`
while a writer holds its thread, so that after a crash only those rows are made again.
Source: docs/architecture.md, "Threads on disk".
"""

from collections.abc import Iterable
from dataclasses import astuple
from itertools import chain, islice
from sqlite3 import Connection
from typing import Any

from app_server.runtime.files.sqlite import damaged
from app_server.threads.codex.threads import Seen
from app_server.threads.index.derived import once_more, sum_of
from app_server.threads.index.lists import ThreadLists
from app_server.threads.index.rows import COLUMN_NAMES, COLUMNS, ThreadRow
from app_server.threads.log.state.thread import ThreadState

ROWS_AT_ONCE = 64
"""Written by one statement. Each statement gives the interpreter's lock away and waits to have it
back, up to sys.getswitchinterval() beside a busy event loop; so a row is none of its own."""

_VALUES = f"({', '.join('?' * (len(COLUMNS) + 2))})"
_ASSIGNMENTS = ", ".join(f"{name} = excluded.{name}" for name in [*COLUMNS[1:], "sum", "open"])
_REPLACE = f"ON CONFLICT (id) DO UPDATE SET {_ASSIGNMENTS}"
_HOLD = "ON CONFLICT (id) DO UPDATE SET open = 1"
_KEEP = "ON CONFLICT (id) DO NOTHING"


class ThreadIndex(ThreadLists):
    """The rows of all threads; safe to call from any worker thread."""

    @once_more
    def put(self, rows: Iterable[ThreadRow], *, is_open: bool) -> None:
        """Insert or replace rows, all or none; `is_open` says that a writer holds their threads."""
        with self.transaction() as database:
            _insert(database, rows, _REPLACE, is_open=is_open)

    @once_more
    def add(self, rows: Iterable[ThreadRow]) -> None:
        """Insert rows that no writer holds, where there is none yet."""
        with self.transaction() as database:
            _insert(database, rows, _KEEP, is_open=False)

    @once_more
    def hold(self, rows: Iterable[ThreadRow]) -> None:
        """Note that a writer holds threads; those that have no row get these."""
        with self.transaction() as database:
            _insert(database, rows, _HOLD, is_open=True)

    @once_more
    def forget_unheld(self, thread_ids: Iterable[str]) -> None:
        """Remove rows, as far as no writer holds their threads."""
        with self.transaction() as database:
            database.executemany(
                "DELETE FROM threads WHERE id = ? AND NOT open",
                [(thread_id,) for thread_id in thread_ids],
            )

    @once_more
    def open_ids(self) -> list[str]:
        """Return the threads that a writer held when it last wrote here."""
        with self.reading() as database:
            found = database.execute("SELECT id FROM threads WHERE open")
            return [thread_id for (thread_id,) in found]

    @once_more
    def own_ids(self) -> list[str]:
        """Return the threads that have a row and should have a log of ours."""
        with self.reading() as database:
            found = database.execute(
                "SELECT id FROM threads WHERE id NOT IN (SELECT thread_id FROM seen)"
            )
            return [thread_id for (thread_id,) in found]

    @once_more
    def mark_open(self, thread_id: str) -> None:
        """Note that a row may be wrong from now on, and has to be made again after a crash."""
        with self.transaction() as database:
            database.execute("UPDATE threads SET open = 1 WHERE id = ?", (thread_id,))

    @once_more
    def forget(self, thread_id: str) -> None:
        """Remove one row."""
        with self.transaction() as database:
            database.execute("DELETE FROM threads WHERE id = ?", (thread_id,))

    # Threads of another program, which are listed beside ours.

    def seen(self) -> list[Seen]:
        """Return the rollouts of Codex of which there are rows."""
        with self.reading() as database:
            found = database.execute(f"SELECT {', '.join(Seen._fields)}, sum FROM seen").fetchall()
            if any(sum_of(values) != written for *values, written in found):
                raise damaged("a row is not what was written")
            return [Seen(*values) for *values, _ in found]

    def put_seen(self, threads: list[tuple[ThreadState, Seen]]) -> None:
        """Insert or replace rows of threads of Codex, all or none."""
        with self.transaction() as database:
            rows = (ThreadRow.of(state) for state, _ in threads)
            _insert(database, rows, _REPLACE, is_open=False)
            places = ", ".join("?" * (len(Seen._fields) + 1))
            database.executemany(
                f"INSERT OR REPLACE INTO seen VALUES ({places})",
                [(*seen, sum_of(seen)) for _, seen in threads],
            )

    def forget_seen(self, thread_ids: list[str], *, rows_too: bool) -> None:
        """Forget that threads are of Codex, `rows_too` with their rows."""
        values = [(thread_id,) for thread_id in thread_ids]
        with self.transaction() as database:
            database.executemany("DELETE FROM seen WHERE thread_id = ?", values)
            if rows_too:
                database.executemany("DELETE FROM threads WHERE id = ?", values)


def _insert(
    database: Connection, rows: Iterable[ThreadRow], conflict: str, *, is_open: bool
) -> None:
    """Write rows, some at a time; `conflict` says what becomes of those that are there."""
    left = map(_stored, rows)
    while some := [(*values, sum_of(values), is_open) for values in islice(left, ROWS_AT_ONCE)]:
        places = ", ".join([_VALUES] * len(some))
        database.execute(
            f"INSERT INTO threads ({COLUMN_NAMES}, sum, open) VALUES {places} {conflict}",
            list(chain.from_iterable(some)),
        )


def _stored(row: ThreadRow) -> list[Any]:
    """Return the values of a row as they are read again: SQLite has no booleans."""
    return [int(value) if isinstance(value, bool) else value for value in astuple(row)]
