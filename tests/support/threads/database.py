"""A store in PostgreSQL of a test's own, and statements on its database."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg

from app_server.threads.nodes import NodeSettings
from app_server.threads.postgresql.database import Database
from app_server.threads.postgresql.store import PostgresStore


@asynccontextmanager
async def opened(url: str, **settings: Any) -> AsyncIterator[PostgresStore]:
    """Open a store, and run it while the context lasts; `settings` are those of its node."""
    store = PostgresStore(Database(url), NodeSettings(**settings))
    try:
        await store.open()
        running = asyncio.create_task(store.run())
        try:
            yield store
        finally:
            # Before the store is closed, as a server does: it would connect again.
            running.cancel()
            await asyncio.wait({running})
    finally:
        await store.aclose()


def asked(url: str, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """Run a statement, and return its rows; none of one that has none."""
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode(), values)
        return cursor.fetchall() if cursor.description else []
