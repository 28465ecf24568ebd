"""store in PostgreSQL: a disk of the database that is really full, and has room again."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.errors import DiskFull

from app_server.config.store_url import StoreUrl
from tests.support.harness import WireClient, serve
from tests.support.postgresql import ROLE, TEMPLATE, Cluster, prepare, running_cluster

pytestmark = pytest.mark.postgresql

DISK_BYTES = 64 << 20
LARGE = "x" * (512 << 10)
"""More than is free in pages that the database has already, and than PostgreSQL compresses."""
FILL = """
INSERT INTO filler SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 60000)
    GROUP BY generate_series / %s
"""


@pytest.fixture
def small_cluster() -> Iterator[Cluster]:
    with running_cluster(disk_bytes=DISK_BYTES) as cluster:
        prepare(cluster)
        cluster.administer(f"CREATE TABLESPACE small LOCATION '{cluster.folder / 'small'}'")
        cluster.administer(
            f"CREATE DATABASE small TEMPLATE {TEMPLATE} OWNER {ROLE} TABLESPACE small"
        )
        yield cluster


def fill(cluster: Cluster) -> None:
    """Take all room of the disk of the database, with smaller rows at last."""
    with psycopg.connect(cluster.url("small", "postgres"), autocommit=True) as connection:
        connection.execute("CREATE TABLE filler (body text)")
        connection.execute("ALTER TABLE filler ALTER body SET STORAGE EXTERNAL")
        for rows in (2000, 100, 2):
            with pytest.raises(DiskFull):
                while True:
                    connection.execute(FILL.encode(), (rows,))


async def test_threads_go_on_as_they_can_on_a_full_disk_and_all_do_when_it_has_room(
    tmp_path: Path, small_cluster: Cluster
) -> None:
    store = StoreUrl.parse(small_cluster.url("small"))

    async def list_loaded(client: WireClient) -> list[str]:
        return list((await client.call("thread/loaded/list", {}))["data"])

    async with serve(tmp_path, store=store) as served, served.client() as client:
        threads = [await client.start_thread() for _ in range(2)]
        for thread_id in threads:
            assert (await client.turn(thread_id, "before"))["status"] == "completed"
        fill(small_cluster)
        for thread_id in threads:
            refused = await client.refusal(
                "turn/start", {"threadId": thread_id, "input": [{"type": "text", "text": LARGE}]}
            )
            found = [refused.data[name] for name in ("code", "reason", "retriable", "threadId")]
            assert found == ["storageFailed", "databaseFull", True, thread_id]
            read = await client.call("thread/read", {"threadId": thread_id, "includeTurns": True})
            assert [turn["status"] for turn in read["thread"]["turns"]] == ["completed"]
        assert await list_loaded(client) == threads
        small_cluster.administer("DROP TABLE filler", "small")
        for thread_id in threads:
            assert (await client.turn(thread_id, LARGE))["status"] == "completed"
    async with serve(tmp_path, store=store) as served, served.client() as client:
        for thread_id in threads:
            resumed = await client.call("thread/resume", {"threadId": thread_id})
            statuses = [turn["status"] for turn in resumed["thread"]["turns"]]
            assert statuses == ["completed", "completed"]
