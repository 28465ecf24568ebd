"""store in PostgreSQL: roles of one database see their own threads, also where owners look."""

from collections.abc import Iterator
from dataclasses import replace

import psycopg
import pytest

from app_server.threads.history.search import SearchQuery
from app_server.threads.postgresql.database import Database
from app_server.threads.postgresql.requirements import TABLES
from app_server.threads.postgresql.store import PostgresStore
from protocol.log.rollout import NameChanged
from tests.support.postgresql import Cluster, name_of
from tests.support.threads.histories import turn
from tests.support.threads.stores import QUERY, created

pytestmark = pytest.mark.postgresql


@pytest.fixture
def other_url(cluster: Cluster, database_url: str) -> Iterator[str]:
    """Make a second role a tenant of the database; its URL."""
    name = name_of(database_url)
    cluster.administer("CREATE ROLE another LOGIN")
    cluster.administer(
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON {', '.join(TABLES)} TO another; "
        "GRANT SELECT ON schema_versions, tenants TO another; "
        "INSERT INTO tenants (role) VALUES ('another')",
        name,
    )
    yield cluster.url(name, "another")
    cluster.administer("DROP OWNED BY another; DROP ROLE another", name)


async def test_a_role_finds_its_own_threads_alone(database_url: str, other_url: str) -> None:
    # The same id, as when two roles import the same home.
    ids = {url: created() for url in (database_url, other_url)}
    shared = created()
    for url, own in ids.items():
        store = PostgresStore(Database(url))
        await store.open()
        for first in (own, shared):
            thread = await store.create(first)
            await thread.append(*turn(0, f"said by {url[13:18]}"), NameChanged(at_ms=5, name="Nm"))
            await store.unload(thread)
        await store.aclose()
    for url, own in ids.items():
        store = PostgresStore(Database(url))
        await store.open()
        mine = {own.thread_id, shared.thread_id}
        listed = await store.lists.page(replace(QUERY, limit=9))
        assert {row.id for row in listed.rows} == mine
        named = await store.lists.page(replace(QUERY, limit=9, search="nm"))
        assert {row.id for row in named.rows} == mine
        for term, found in (("said by", mine), (f"said by {url[13:18]}", mine), ("nowhere", set())):
            page, _ = await store.history.search(SearchQuery(term=term, limit=9))
            assert {one.thread_id for one in page.found} == found
        await store.aclose()
    store = PostgresStore(Database(database_url))
    await store.open()
    await store.delete(shared.thread_id)
    await store.aclose()
    with psycopg.connect(other_url, autocommit=True) as connection:
        for table in ("texts", "named", "threads", "records"):
            column = "id" if table == "threads" else "thread_id"
            rows = connection.execute(f"SELECT DISTINCT {column}::text FROM {table}".encode())
            assert {row[0] for row in rows} == {ids[other_url].thread_id, shared.thread_id}
