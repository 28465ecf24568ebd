"""News of threads by NOTIFY, which takes a lock of the whole database: so apart from appends.

Source: docs/scale.md, "News of lists";
https://www.postgresql.org/docs/15/sql-notify.html.
"""

import logging
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence

import anyio
import anyio.to_thread
import psycopg

from app_server.threads.failures import InvalidThreadId, StoreUnavailable, uuid_of
from app_server.threads.postgresql.database import AsyncConnection, Database, database_failures

logger = logging.getLogger(__name__)

LOOK_S = 5.0
"""Seconds without news after which whoever listens looks for himself."""
RETRY_S = 1.0
MAX_IDS = 200
"""Of one notification, which has at most 8,000 bytes."""
_CHANNEL = "SELECT 'app_server_threads_' || current_tenant()"


class PostgresNews:
    """News by NOTIFY, in a channel of the tenant."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._sender = uuid.uuid4().hex
        """Stands before the ids: a session hears itself, too."""

    async def tell(self, thread_ids: Sequence[str]) -> None:
        """Tell the others that threads have changed; see ThreadNews."""
        await anyio.to_thread.run_sync(self._tell, thread_ids)

    def _tell(self, thread_ids: Sequence[str]) -> None:
        with self._database.connection() as connection:
            for part in _parts(thread_ids):
                text = " ".join([self._sender, *part])
                connection.execute(f"SELECT pg_notify(({_CHANNEL}), %s)", (text,))

    async def heard(self) -> AsyncIterator[Sequence[str]]:
        """Give what others tell; see ThreadNews."""
        fails = False
        while True:
            try:
                async with await self._database.connect_async() as connection:
                    fails = False
                    async for ids in self._of(connection):
                        yield ids
            except (StoreUnavailable, psycopg.Error) as exc:
                if not fails:
                    logger.warning("news of threads cannot be heard, and are tried again: %s", exc)
                fails = True
                await anyio.sleep(RETRY_S)

    async def _of(self, connection: AsyncConnection) -> AsyncIterator[Sequence[str]]:
        with database_failures():
            (channel,) = await (await connection.execute(_CHANNEL)).fetchone() or ("",)
            await connection.execute(f'LISTEN "{channel}"'.encode())
            # Of what was told before, nothing is known.
            yield ()
            while True:
                async for notice in connection.notifies(timeout=LOOK_S):
                    if ids := self._ids_in(notice.payload):
                        yield ids
                yield ()

    def _ids_in(self, payload: str) -> Sequence[str]:
        """Return the threads that a payload names; every role of the database may send one."""
        sender, *ids = payload.split() or [self._sender]
        return [] if sender == self._sender else list(filter(_is_id, ids))


def _is_id(text: str) -> bool:
    try:
        uuid_of(text)
    except InvalidThreadId:
        return False
    return True


def _parts(thread_ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for first in range(0, len(thread_ids), MAX_IDS):
        yield thread_ids[first : first + MAX_IDS]
