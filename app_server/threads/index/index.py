"""The index over all threads: lists and searches without opening a log. Everything here blocks.

The index is a copy: whatever it says can be made again from the rollouts. A row is marked `open`
while a writer holds its thread, so that after a crash only those rows are made again.
Source: docs/architecture.md, "Threads on disk".
"""

from collections.abc import Iterable
from dataclasses import astuple
from itertools import chain, islice
from sqlite3 import Connection

from app_server.threads.codex.threads import Seen
from app_server.threads.index.lists import ThreadLists
from app_server.threads.index.rows import COLUMN_NAMES, COLUMNS, ThreadRow
from app_server.threads.log.state.thread import ThreadState

ROWS_AT_ONCE = 64
"""Written by one statement. Each statement gives the interpreter's lock away and waits to have it
back, up to sys.getswitchinterval() beside a busy event loop; so a row is none of its own."""

_VALUES = f"({', '.join('?' * (len(COLUMNS) + 1))})"
_ASSIGNMENTS = ", ".join(f"{name} = excluded.{name}" for name in [*COLUMNS[1:], "open"])
_REPLACE = f"ON CONFLICT (id) DO UPDATE SET {_ASSIGNMENTS}"
_KEEP = "ON CONFLICT (id) DO NOTHING"


class ThreadIndex(ThreadLists):
    """The rows of all threads; safe to call from any worker thread."""

    def put(self, rows: Iterable[ThreadRow], *, is_open: bool) -> None:
        """Insert or replace rows, all or none; `is_open` says that a writer holds their threads."""
        with self.transaction() as database:
            _insert(database, rows, _REPLACE, is_open=is_open)

    def add(self, rows: Iterable[ThreadRow]) -> None:
        """Insert rows that no writer holds, where there is none yet."""
        with self.transaction() as database:
            _insert(database, rows, _KEEP, is_open=False)

    def forget_unheld(self, thread_ids: Iterable[str]) -> None:
        """Remove rows, as far as no writer holds their threads."""
        with self.transaction() as database:
            database.executemany(
                "DELETE FROM threads WHERE id = ? AND NOT open",
                [(thread_id,) for thread_id in thread_ids],
            )

    def open_ids(self) -> list[str]:
        """Return the threads that a writer held when it last wrote here."""
        with self.reading() as database:
            found = database.execute("SELECT id FROM threads WHERE open")
            return [thread_id for (thread_id,) in found]

    def own_ids(self) -> list[str]:
        """Return the threads that have a row and should have a log of ours."""
        with self.reading() as database:
            found = database.execute(
                "SELECT id FROM threads WHERE id NOT IN (SELECT thread_id FROM seen)"
            )
            return [thread_id for (thread_id,) in found]

    def mark_open(self, thread_id: str) -> None:
        """Note that a row may be wrong from now on, and has to be made again after a crash."""
        with self.transaction() as database:
            database.execute("UPDATE threads SET open = 1 WHERE id = ?", (thread_id,))

    def forget(self, thread_id: str) -> None:
        """Remove one row."""
        with self.transaction() as database:
            database.execute("DELETE FROM threads WHERE id = ?", (thread_id,))

    # Threads of another program, which are listed beside ours.

    def seen(self) -> list[Seen]:
        """Return the rollouts of Codex of which there are rows."""
        with self.reading() as database:
            found = database.execute(f"SELECT {', '.join(Seen._fields)} FROM seen")
            return [Seen(*values) for values in found]

    def put_seen(self, threads: list[tuple[ThreadState, Seen]]) -> None:
        """Insert or replace rows of threads of Codex, all or none."""
        with self.transaction() as database:
            rows = (ThreadRow.of(state) for state, _ in threads)
            _insert(database, rows, _REPLACE, is_open=False)
            places = ", ".join("?" * len(Seen._fields))
            database.executemany(
                f"INSERT OR REPLACE INTO seen VALUES ({places})", [seen for _, seen in threads]
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
    left = iter(rows)
    while some := [(*astuple(row), is_open) for row in islice(left, ROWS_AT_ONCE)]:
        places = ", ".join([_VALUES] * len(some))
        database.execute(
            f"INSERT INTO threads ({COLUMN_NAMES}, open) VALUES {places} {conflict}",
            list(chain.from_iterable(some)),
        )
