"""Environments that clients of any server of a database added.

Source: docs/environments.md, "Several servers".
"""

from collections.abc import Sequence

import anyio.to_thread

from app_server.threads.environments import AddedEnvironment
from app_server.threads.postgresql.database import Database

MAX_KEPT = 64
"""As many as a server takes; those that were added first are dropped."""

_PUT = """
INSERT INTO environments (id, url, request_id, connect_ms) VALUES (%s, %s, %s, %s)
ON CONFLICT (tenant, id) DO UPDATE SET url = excluded.url, request_id = excluded.request_id,
    connect_ms = excluded.connect_ms, number = DEFAULT
"""
_DROP = """
DELETE FROM environments WHERE number <= (
    SELECT number FROM environments ORDER BY number DESC LIMIT 1 OFFSET %s
)
"""
_ALL = "SELECT id, url, request_id, connect_ms FROM environments ORDER BY number DESC LIMIT %s"


class PostgresEnvironments:
    """A table of environments, without their tokens."""

    def __init__(self, database: Database) -> None:
        """Take the database, which the store of threads opens and closes."""
        self._database = database

    async def put(self, environment: AddedEnvironment) -> None:
        """Make an environment known to the other servers; see AddedEnvironments.put."""
        await anyio.to_thread.run_sync(self._put, environment)

    def _put(self, environment: AddedEnvironment) -> None:
        with self._database.transaction() as connection:
            values = environment.id, environment.url, environment.request_id, environment.connect_ms
            connection.execute(_PUT, values)
            connection.execute(_DROP, (MAX_KEPT,))

    async def all(self) -> Sequence[AddedEnvironment]:
        """Return those that were added last; see AddedEnvironments.all."""
        return await anyio.to_thread.run_sync(self._all)

    def _all(self) -> Sequence[AddedEnvironment]:
        with self._database.connection() as connection:
            return [AddedEnvironment(*row) for row in connection.execute(_ALL, (MAX_KEPT,))]
