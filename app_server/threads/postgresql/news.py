"""News of threads by NOTIFY, which takes a lock of the whole database: so apart from appends.

Source: docs/scale.md, "News of lists";
https://www.postgresql.org/docs/15/sql-notify.html.
"""

import logging
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import anyio
import anyio.to_thread
import psycopg

from app_server.threads.failures import InvalidThreadId, StoreUnavailable, uuid_of
from app_server.threads.news import ThreadChange
from app_server.threads.postgresql.database import AsyncConnection, Database, database_failures

logger = logging.getLogger(__name__)

LOOK_S = 5.0
"""Seconds without news after which whoever listens looks for himself."""
RETRY_S = 1.0
MAX_IDS = 200
"""Of one notification, which has at most 8,000 bytes."""
_NEW = "+"
"""Stands before the id of a thread that was begun."""
_CHANNEL = "SELECT 'app_server_threads_' || current_tenant()"


class PostgresNews:
    """News by NOTIFY, in a channel of the tenant."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._sender = uuid.uuid4().hex
        """Stands before the ids: a session hears itself, too."""

    async def publish(self, changes: Sequence[ThreadChange]) -> None:
        """Tell the others that threads have changed; see ThreadNews."""
        await anyio.to_thread.run_sync(self._tell, changes)

    def _tell(self, changes: Sequence[ThreadChange]) -> None:
        words = [f"{_NEW}{thread_id}" if is_new else thread_id for thread_id, is_new in changes]
        with self._database.connection() as connection:
            for first in range(0, len(words), MAX_IDS):
                text = " ".join([self._sender, *words[first : first + MAX_IDS]])
                try:
                    connection.execute(f"SELECT pg_notify(({_CHANNEL}), %s)", (text,))
                except psycopg.errors.ProgramLimitExceeded:
                    # A queue that was full once stays so, until somebody asks for its length:
                    # then PostgreSQL forgets what all have read.
                    connection.execute("SELECT pg_notification_queue_usage()")
                    raise

    async def subscribe(self) -> AsyncGenerator[Sequence[ThreadChange]]:
        """Give what others tell; see ThreadNews."""
        fails = False
        while True:
            try:
                connection = await self._database.connect_async()
                try:
                    fails = False
                    async with aclosing(self._of(connection)) as heard:
                        async for changes in heard:
                            yield changes
                finally:
                    # Its own way out rolls back first, which whoever is cancelled does not reach.
                    await connection.close()
            except (StoreUnavailable, psycopg.Error) as exc:
                if not fails:
                    logger.warning("news of threads cannot be heard, and are tried again: %s", exc)
                fails = True
                await anyio.sleep(RETRY_S)

    async def _of(self, connection: AsyncConnection) -> AsyncGenerator[Sequence[ThreadChange]]:
        with database_failures():
            (channel,) = await (await connection.execute(_CHANNEL)).fetchone() or ("",)
            await connection.execute(f'LISTEN "{channel}"'.encode())
            # Of what was told before, nothing is known.
            yield ()
            while True:
                async with aclosing(connection.notifies(timeout=LOOK_S)) as notices:
                    async for notice in notices:
                        if changes := self._changes_in(notice.payload):
                            yield changes
                yield ()

    def _changes_in(self, payload: str) -> Sequence[ThreadChange]:
        """Return what a payload of another node tells; every role of the database may send one."""
        sender, *words = payload.split() or [self._sender]
        if sender == self._sender:
            return []
        told = (ThreadChange(word.removeprefix(_NEW), word.startswith(_NEW)) for word in words)
        return [change for change in told if _is_id(change.thread_id)]


def _is_id(text: str) -> bool:
    try:
        uuid_of(text)
    except InvalidThreadId:
        return False
    return True
