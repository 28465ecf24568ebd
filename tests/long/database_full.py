"""A PostgreSQL whose whole disk is full, its log too: what clients are told, and what goes on.

mount -t tmpfs -o size=600m none FOLDER     # any small disk
TMPDIR=FOLDER python -m tests.long.database_full

All that is free on the disk of TMPDIR is taken while threads are written; PostgreSQL may panic and
end. Then there is room again, and PostgreSQL is started where it has ended. Prints what was
answered; the exit status is 0 only if each thread has all turns that were said to be completed, and
takes another one.
"""

import asyncio
import errno
import os
import sys
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path

from app_server.config.store_url import StoreUrl
from tests.support.harness import WireClient, WireError, serve
from tests.support.postgresql import Cluster, prepare, running_cluster

THREADS = 4
TEXT = os.urandom(100 << 10).hex()
MOST = 200
"""Turns that are tried until PostgreSQL has no room."""
MAX_DISK_BYTES = 2 << 30
WAIT_S = 60.0
_ROOM = """
INSERT INTO records SELECT tenant, id, 1000000000 + number, 0,
    decode(repeat(md5(number::text), 31250), 'hex')
FROM threads, generate_series(1, 30) AS number
"""
"""Pages of the table that are free afterwards: then the log of PostgreSQL needs room first."""


def _make_room_in_tables(cluster: Cluster) -> None:
    where = "migrated"
    cluster.administer("ALTER TABLE records ALTER body SET STORAGE EXTERNAL", where)
    cluster.administer(_ROOM, where)
    cluster.administer("DELETE FROM records WHERE position >= 1000000000", where)
    cluster.administer("VACUUM (TRUNCATE off) records", where)
    # As of a standby that is gone: nothing of the log is used again.
    cluster.administer("SELECT pg_create_physical_replication_slot('gone', true)")


def _take_all(file: Path) -> None:
    """Take what is free, but for a few pages."""
    with file.open("wb", buffering=0) as filler:
        for size in (1 << 20, 1 << 16, 1 << 12):
            with suppress(OSError):
                while True:
                    filler.write(b"\0" * size)


async def _try(client: WireClient, thread_id: str) -> str:
    """Run a turn; return how it ended."""
    try:
        turn = await client.turn(thread_id, TEXT)
    except WireError as exc:
        data = exc.data or {}
        return f"{data.get('code')}, {data.get('reason')}, retriable: {data.get('retriable')}"
    return str(turn["status"])


async def _completed(client: WireClient, thread_id: str) -> int:
    resumed = await client.call("thread/turns/list", {"threadId": thread_id, "limit": 500})
    return sum(turn["status"] == "completed" for turn in resumed["data"])


async def _again(client: WireClient, cluster: Cluster, thread_id: str) -> str:
    """Try a turn until it completes; return how the last one ended."""
    said = ""
    with suppress(TimeoutError):
        async with asyncio.timeout(WAIT_S):
            while said != "completed":
                if not cluster.is_running:
                    print("PostgreSQL has ended, and is started")
                    await asyncio.to_thread(cluster.start)
                with suppress(WireError):
                    await client.call("thread/resume", {"threadId": thread_id})
                said = await _try(client, thread_id)
                await asyncio.sleep(0.5)
    return said


async def _run(cluster: Cluster, home: Path, filler: Path, *, is_log_first: bool) -> bool:
    store = StoreUrl.parse(cluster.url("migrated"))
    completed: Counter[str] = Counter()
    async with serve(home, store=store) as served, served.client() as client:
        threads = [await client.start_thread() for _ in range(THREADS)]
        if is_log_first:
            await asyncio.to_thread(_make_room_in_tables, cluster)
        _take_all(filler)
        said: list[str] = []
        while len(said) < MOST and sum(one != "completed" for one in said) < 3 * THREADS:
            thread_id = threads[len(said) % THREADS]
            said.append(await _try(client, thread_id))
            completed[thread_id] += said[-1] == "completed"
        for text, count in Counter(said).items():
            print(f"{count} times: {text}")
        loaded = (await client.call("thread/loaded/list", {}))["data"]
        print(f"{len(loaded)} of {THREADS} threads are loaded")
        print(f"PostgreSQL {'runs' if cluster.is_running else 'has ended'}")
        filler.unlink()
        is_whole = True
        for thread_id in threads:
            last = await _again(client, cluster, thread_id)
            found = await _completed(client, thread_id)
            print(f"with room: {last}; {found} completed turns, {completed[thread_id]} before")
            is_whole &= last == "completed" and found == completed[thread_id] + 1
    return is_whole


def main() -> int:
    """Fill the disk for the tables, and for the log."""
    folder = Path(tempfile.gettempdir())
    disk = os.statvfs(folder)
    if disk.f_blocks * disk.f_frsize > MAX_DISK_BYTES:
        print(f"{folder} is on a disk of more than 2 GiB: {os.strerror(errno.EINVAL)}")
        return 2
    is_whole = True
    for is_log_first in (False, True):
        print("the log is full" if is_log_first else "tables are full")
        with (
            running_cluster(fsync=True) as cluster,
            tempfile.TemporaryDirectory(dir="/tmp") as home,
        ):
            prepare(cluster)
            run = _run(cluster, Path(home), folder / "filler", is_log_first=is_log_first)
            is_whole &= asyncio.run(run)
    print("nothing was lost" if is_whole else "NOT as it should be")
    return 0 if is_whole else 1


if __name__ == "__main__":
    sys.exit(main())
