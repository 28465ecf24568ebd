"""A database that is restored to a moment has all that was acknowledged before it."""

import asyncio
import re
import shlex
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.support.fleet.checker import faults_of
from tests.support.fleet.load import Told, load_on
from tests.support.fleet.nodes import fleet_of
from tests.support.harness import WAIT_S, WireClient, WireError
from tests.support.paths import ROOT
from tests.support.postgresql import (
    ROLE,
    TEMPLATE,
    Cluster,
    name_of,
    prepare,
    program,
    running_cluster,
)

pytestmark = [pytest.mark.postgresql, pytest.mark.process]

ARCHIVING = ("archive_mode=on", "archive_command=mkdir -p ../archive && cp %p ../archive/%f")
ARCHIVED = "NOT EXISTS (SELECT FROM pg_ls_archive_statusdir() WHERE name LIKE '%.ready')"
CLIENTS = 3


def asked(cluster: Cluster, statement: str) -> tuple[Any, ...]:
    with psycopg.connect(cluster.url("postgres", "postgres"), autocommit=True) as connection:
        row = connection.execute(statement.encode()).fetchone()
    assert row is not None
    return row


def wait_until(cluster: Cluster, condition: str) -> None:
    until = time.monotonic() + WAIT_S
    while not asked(cluster, f"SELECT {condition}")[0]:
        assert time.monotonic() < until
        time.sleep(0.05)


async def test_a_base_backup_and_its_log_bring_back_a_moment(tmp_path: Path) -> None:
    with ExitStack() as stack:
        cluster = stack.enter_context(running_cluster(*ARCHIVING, fsync=True))
        prepare(cluster)
        cluster.administer(f"CREATE DATABASE kept TEMPLATE {TEMPLATE} OWNER {ROLE}")
        url = cluster.url("kept")
        async with fleet_of(1, cluster, url, tmp_path) as fleet, load_on(fleet, CLIENTS) as told:
            await told.more_turns(CLIENTS)
            backup = stack.enter_context(cluster.backup())
            await told.more_turns(CLIENTS)
            asked(cluster, "SELECT pg_create_restore_point('moment') IS NULL")
            # What was acknowledged up to here, as the load goes on in this event loop alone.
            before = told.so_far()
            await told.more_turns(CLIENTS)
            (log,) = asked(cluster, "SELECT pg_walfile_name(pg_switch_wal())")
            wait_until(cluster, f"last_archived_wal >= '{log}' FROM pg_stat_archiver")
        cluster.stop()
        backup.restore(cluster.folder / "archive", "moment")
        wait_until(backup, "NOT pg_is_in_recovery()")
        await check_restored(backup, url, tmp_path / "restored", before, told)


async def check_restored(cluster: Cluster, url: str, home: Path, before: Told, told: Told) -> None:
    """Load all threads, and compare them with what was told before the moment, and behind it."""
    async with fleet_of(1, cluster, url, home) as fleet:
        running = fleet.nodes[0].running
        assert running is not None
        async with running.client() as client:
            for thread_id in before.accepted:
                # The server that wrote it died with the old database, which is seen soon.
                while not await resumed(client, thread_id):
                    await asyncio.sleep(0.2)
    administrator = cluster.url(name_of(url), "postgres")
    assert faults_of(administrator, before) == []
    assert sum(map(len, before.accepted.values())) >= 2 * CLIENTS
    # The moment was before the end.
    assert any(found.endswith("is lost") for found in faults_of(administrator, told))


async def test_the_commands_of_the_page_bring_back_a_moment(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "scale.md").read_text()
    (block,) = re.findall(r"^```sh\n(pg_basebackup .*?)^```$", text, re.MULTILINE | re.DOTALL)
    settings = "".join(f"{line}\n" for line in re.findall(r"^#   (\w+ = .*)$", block, re.MULTILINE))
    take, *point, restore = [line for line in block.splitlines() if not line.startswith("#")]
    with running_cluster(*ARCHIVING, fsync=True) as cluster:
        prepare(cluster)
        cluster.administer(f"CREATE DATABASE kept TEMPLATE {TEMPLATE} OWNER {ROLE}")
        url, data = cluster.url("kept"), cluster.folder / "data"

        def placed(line: str) -> str:
            for there, here in (("/backup", "backup"), ("/archive", "archive")):
                line = line.replace(there, str(cluster.folder / here))
            return line.replace("DATA", str(data))

        def run(line: str) -> None:
            folders = f"{Path(program('pg_basebackup')).parent}:{Path(program('psql')).parent}"
            where = (
                f"PGHOST={shlex.quote(str(cluster.folder))} PGUSER=postgres PATH={folders}:$PATH"
            )
            cluster.run("sh", "-ec", f"export {where}\n{placed(line)}")

        async with fleet_of(1, cluster, url, tmp_path) as fleet, load_on(fleet, CLIENTS) as told:
            await told.more_turns(CLIENTS)
            run(take)
            await told.more_turns(CLIENTS)
            for line in point:
                run(line)
            before = told.so_far()
            wait_until(cluster, ARCHIVED)
            await told.more_turns(CLIENTS)
        # As when its machine is lost: nothing more comes into the archive.
        cluster.stop()
        data.rename(cluster.folder / "lost")
        (cluster.folder / "backup" / "base").rename(data)
        run(restore)
        with (data / "postgresql.conf").open("a") as file:
            file.write(placed(settings))
        cluster.start()
        wait_until(cluster, "NOT pg_is_in_recovery()")
        await check_restored(cluster, url, tmp_path / "restored", before, told)


async def resumed(client: WireClient, thread_id: str) -> bool:
    """Load a thread; False: its last server is not known to be dead yet."""
    try:
        await client.call("thread/resume", {"threadId": thread_id})
    except WireError as exc:
        if exc.data["code"] != "threadBusy":
            raise
        return False
    return True
