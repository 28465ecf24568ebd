"""Threads of the database for a copy to files or from them. Blocks."""

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from uuid import UUID

from app_server.threads.nodes import ALONE
from app_server.threads.postgresql.database import Database
from app_server.threads.postgresql.lists import INSERTED, WrittenRow, as_json
from app_server.threads.postgresql.nodes import ANNOUNCED, NODE_LOCK, announcement
from app_server.threads.postgresql.records import DatabaseLog
from app_server.threads.postgresql.store import give_back, take
from app_server.threads.rows import ThreadRow

COPY_LOCK = 0x636F7079
"""Class of the advisory lock that copies of a tenant hold, one after the other."""

_OF_TENANT = "tenant = (SELECT current_tenant())"


class DatabaseCopy:
    """The threads of a database, for one copy at a time."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._node_id = uuid.uuid4()

    @contextmanager
    def alone(self, say: Callable[[str], None]) -> Iterator[None]:
        """Wait for another copy to end, and be a server of the database meanwhile.

        Raises:
            StoreUnavailable
        """
        with self._database.connect() as session:
            locked = session.execute(
                "SELECT pg_try_advisory_lock(%s, current_tenant())", (COPY_LOCK,)
            ).fetchone()
            if locked is None or not locked[0]:
                say("another copy runs; this one waits for its end")
                session.execute("SET statement_timeout = 0")
                session.execute("SELECT pg_advisory_lock(%s, current_tenant())", (COPY_LOCK,))
            values = announcement(self._node_id, ALONE)
            lock = session.execute(ANNOUNCED.encode(), values).fetchone()
            assert lock is not None
            # It has nothing that renews: it lives as long as its session.
            session.execute(
                "UPDATE nodes SET expires_at = 'infinity' WHERE id = %s", (self._node_id,)
            )
            session.execute("SELECT pg_advisory_lock(%s, %s)", (NODE_LOCK, lock[0]))
            yield
            session.execute("DELETE FROM nodes WHERE id = %s", (self._node_id,))

    def log(self, thread_id: UUID) -> DatabaseLog:
        """Return the log of a thread."""
        return DatabaseLog(self._database, thread_id)

    def ids(self) -> Sequence[UUID]:
        """Return all threads, in the order in which they began."""
        with self._database.connection() as connection:
            found = connection.execute(f"SELECT id FROM threads WHERE {_OF_TENANT} ORDER BY id")
            return [row[0] for row in found]

    def add(self, thread_id: UUID, row: ThreadRow, bodies: Iterable[bytes]) -> bool:
        """Add a thread that nobody holds, with its log; False: there is one of this id."""
        with self._database.transaction() as connection:
            values = self._node_id, as_json([WrittenRow(row)])
            if connection.execute(INSERTED.encode(), values).fetchone() is None:
                return False
            position = 0
            for body in bodies:
                connection.execute(
                    "INSERT INTO records (thread_id, position, epoch, body) VALUES (%s, %s, 1, %s)",
                    (thread_id, position, body),
                    binary=True,
                )
                position += len(body)
            connection.execute("UPDATE threads SET owner = NULL WHERE id = %s", (thread_id,))
        return True

    @contextmanager
    def held(self, thread_id: UUID) -> Iterator[None]:
        """Keep servers from writing a thread.

        Raises:
            ThreadBusy, ThreadNotFound, StoreUnavailable
        """
        holding = take(self._database, self._node_id, thread_id)
        try:
            yield
        finally:
            give_back(self._database, holding)

    def filing(self) -> Sequence[bytes]:
        """Return the lines of the log of projects and sections."""
        with self._database.connection() as connection:
            found = connection.execute(
                f"SELECT body FROM filing WHERE {_OF_TENANT} ORDER BY position"
            )
            return [row[0] for row in found]

    def add_filing(self, lines: Sequence[bytes]) -> bool:
        """Add the lines of projects and sections where there are none; False: there are others."""
        if there := self.filing():
            return list(there) == list(lines)
        with self._database.transaction() as connection:
            for position, line in enumerate(lines):
                connection.execute(
                    "INSERT INTO filing (position, body) VALUES (%s, %s)", (position, line)
                )
        return True
