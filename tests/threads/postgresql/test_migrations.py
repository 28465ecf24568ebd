"""store in PostgreSQL: the steps of the schema."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from app_server.threads.postgresql.database import Database
from app_server.threads.postgresql.migrations import Migration, migrate, migrations, schema_version

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
