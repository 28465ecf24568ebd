"""Fills PostgreSQL's queue of notifications, and looks at what clients of another node hear.

python -m tests.long.notify_queue        # 8 GB in the folder for temporary files, some minutes

A session that listens leaves a transaction open, so that nothing that was sent is forgotten. While
`NOTIFY` is refused, threads are begun, named, archived and deleted at one node; then the session
ends. Prints when a client of the other node hears of each; the exit status is 0 only if it hears of
each once, of all but the deletion while the queue is full.
"""

import asyncio
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
from psycopg.errors import ProgramLimitExceeded

from tests.support.harness import WireClient
from tests.support.postgresql import ROLE, TEMPLATE, Cluster, prepare, running_cluster
from tests.support.threads.nodes import running_nodes

FILL = """
SELECT count(pg_notify('filler', md5(number::text) || repeat('x', 7900)))
FROM generate_series(1, %s) AS number
"""
ROWS = 20_000
"""Of one transaction; smaller ones at last, as one is refused as a whole."""
WAIT_S = 300.0
"""For PostgreSQL to read and remove 8 GB, too: half a minute in memory, minutes on a busy disk."""
QUIET_S = 12.0
"""After which a client would have heard what comes twice: two looks."""
OF_LISTS = ("thread/started", "thread/name/updated", "thread/archived", "thread/deleted")


def _fill(cluster: Cluster) -> None:
    with psycopg.connect(cluster.url("kept", "postgres"), autocommit=True) as connection:
        for rows in (ROWS, 1000, 1):
            with suppress(ProgramLimitExceeded):
                while True:
                    connection.execute(FILL.encode(), (rows,))


async def _hear(client: WireClient, wanted: int, wait_s: float) -> list[tuple[str, Any]]:
    """Return the news of lists that come, at most so many."""
    heard: list[tuple[str, Any]] = []
    began_s = time.monotonic()
    with suppress(TimeoutError):
        async with asyncio.timeout(wait_s):
            while len(heard) < wanted:
                message = await client.receive()
                if message.get("method") in OF_LISTS:
                    params = message["params"]
                    heard.append((message["method"], params.get("threadId", "-")))
                    print(f"  after {time.monotonic() - began_s:.1f} s: {message['method']}")
    return heard


async def _run(cluster: Cluster, folder: Path) -> bool:
    url = cluster.url("kept")
    async with (
        running_nodes(folder, url) as nodes,
        nodes.all[0].client() as here,
        nodes.all[1].client() as there,
    ):
        named, archived, deleted = [await here.start_thread() for _ in range(3)]
        for thread_id in (named, archived, deleted):
            await here.turn(thread_id, "hi")
        await _hear(there, 3, WAIT_S)
        with psycopg.connect(cluster.url("kept", "postgres")) as held:
            held.execute("LISTEN anything")
            held.commit()
            held.execute("SELECT 1")
            began_s = time.monotonic()
            await asyncio.to_thread(_fill, cluster)
            print(f"the queue is full after {time.monotonic() - began_s:.0f} s")
            await here.call("thread/name/set", {"threadId": named, "name": "a name"})
            await here.call("thread/archive", {"threadId": archived})
            await here.call("thread/delete", {"threadId": deleted})
            begun = await here.start_thread()
            assert (await here.turn(begun, "hi"))["status"] == "completed"
            while_full = await _hear(there, 3, WAIT_S)
        print("the session has ended")
        later = await _hear(there, 1, WAIT_S)
        later += await _hear(there, 9, QUIET_S)
    return later == [("thread/deleted", deleted)] and sorted(while_full) == [
        ("thread/archived", archived),
        ("thread/name/updated", named),
        ("thread/started", "-"),
    ]


def main() -> int:
    """Fill the queue once; returns the exit status."""
    with running_cluster() as cluster, tempfile.TemporaryDirectory() as folder:
        prepare(cluster)
        cluster.administer(f"CREATE DATABASE kept TEMPLATE {TEMPLATE} OWNER {ROLE}")
        is_whole = asyncio.run(_run(cluster, Path(folder)))
    print("each was heard of once" if is_whole else "NOT as it should be")
    return 0 if is_whole else 1


if __name__ == "__main__":
    sys.exit(main())
