"""store in PostgreSQL: the steps of the schema."""

import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import psycopg
import pytest

from app_server.threads.postgresql.database import Database
from app_server.threads.postgresql.migrations import Migration, migrate, migrations, schema_version
from tests.support.harness import WAIT_S
from tests.support.postgresql import Cluster, name_of
from tests.support.processes import EXECUTABLE, run_cli

pytestmark = pytest.mark.postgresql


def version_of(url: str) -> int:
    with Database(url).connect() as connection:
        return schema_version(connection)


def test_steps_are_run_once_in_their_order(empty_database_url: str) -> None:
    known = [step.version for step in migrations()]
    assert known == list(range(1, len(known) + 1))
    ran: list[Migration] = []
    assert version_of(empty_database_url) == 0
    for _ in range(2):
        assert migrate(Database(empty_database_url), ran.append) == known[-1]
    assert [step.version for step in ran] == known
    assert version_of(empty_database_url) == known[-1]


def test_two_that_migrate_at_once_run_each_step_once(empty_database_url: str) -> None:
    ran: list[Migration] = []
    with ThreadPoolExecutor(4) as workers:
        each = partial(migrate, Database(empty_database_url), ran.append)
        versions = [work.result() for work in [workers.submit(each) for _ in range(4)]]
    assert set(versions) == {len(migrations())}
    assert [step.version for step in ran] == [step.version for step in migrations()]


_STOP_IN_A_STEP = """
CREATE FUNCTION wait_for_test() RETURNS event_trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM pg_advisory_xact_lock(1); END $$;
CREATE EVENT TRIGGER wait_for_test ON ddl_command_end WHEN TAG IN ('CREATE INDEX')
    EXECUTE FUNCTION wait_for_test();
"""
_WAITING = (
    "SELECT count(*) FROM pg_stat_activity "
    "WHERE datname = current_database() AND wait_event = 'advisory'"
)


@pytest.mark.process
def test_a_migration_that_was_killed_in_a_step_is_gone_on_with(
    empty_database_url: str, cluster: Cluster, tmp_path: Path
) -> None:
    url, name = empty_database_url, name_of(empty_database_url)
    words = ["store", "migrate", "--store", url, "--home", str(tmp_path)]
    cluster.administer(_STOP_IN_A_STEP, name)
    with psycopg.connect(cluster.url(name, "postgres"), autocommit=True) as holder:

        def wait_for(count: int) -> None:
            until = time.monotonic() + WAIT_S
            while holder.execute(_WAITING).fetchone() != (count,):
                assert time.monotonic() < until
                time.sleep(0.02)

        holder.execute("SELECT pg_advisory_lock(1)")
        killed = subprocess.Popen(
            [str(EXECUTABLE), *words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        wait_for(1)
        killed.kill()
        killed.wait()
        # The database does not know yet that it was killed: the next one waits for it.
        with ThreadPoolExecutor(1) as worker:
            again = worker.submit(run_cli, *words)
            wait_for(2)
            assert version_of(url) == 0
            holder.execute("SELECT pg_advisory_unlock(1)")
            ended = again.result()
    assert (ended.returncode, ended.stderr) == (0, "")
    assert version_of(url) == len(migrations())
