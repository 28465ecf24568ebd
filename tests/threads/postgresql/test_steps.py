"""Steps of the schema only add: servers of the version before run beside them.

The catalogs of a database are compared before and after each step. A step that an older version
cannot run beside says so in a line of its own: `-- Ends servers before VERSION: REASON`.
Source: docs/scale.md, "Migrations".
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import psycopg
import pytest

from app_server import VERSION
from app_server.threads.postgresql.migrations import migrations

pytestmark = pytest.mark.postgresql

ENDS = re.compile(r"^-- Ends servers before (\d+)\.(\d+)\.(\d+): \S.*$", re.MULTILINE)
TENANTS = "tenants"
"""Table whose rows nobody removes."""


class _Fact(NamedTuple):
    """One thing that the catalogs say; a change of it is another fact."""

    kind: str
    table: str
    """None's: the empty string."""
    name: str
    value: str


_FACTS = """
WITH ours AS (
    SELECT * FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
)
SELECT 'table', relname, '', format('row security %s, forced %s', relrowsecurity,
    relforcerowsecurity) FROM ours
UNION ALL
SELECT CASE WHEN attnotnull AND NOT atthasdef AND attidentity = ''
        THEN 'required column' ELSE 'column' END,
    relname, attname, concat_ws(' ', format_type(atttypid, atttypmod), attnotnull::text,
        attidentity, attgenerated, attcollation::text, pg_get_expr(adbin, adrelid))
FROM ours JOIN pg_attribute ON attrelid = ours.oid
LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
WHERE attnum > 0 AND NOT attisdropped
UNION ALL
SELECT CASE WHEN contype = 'f' AND confdeltype IN ('a', 'r') THEN 'hold on rows of'
        ELSE 'constraint' END,
    CASE WHEN contype = 'f' AND confdeltype IN ('a', 'r')
        THEN (SELECT relname FROM pg_class WHERE oid = confrelid) ELSE relname END,
    conname, relname || ' ' || pg_get_constraintdef(pg_constraint.oid)
FROM ours JOIN pg_constraint ON conrelid = ours.oid WHERE contype <> 'n'
UNION ALL
SELECT CASE WHEN indisunique AND indpred IS NULL THEN 'unique index' ELSE 'index' END,
    relname, indexrelid::regclass::text, pg_get_indexdef(indexrelid)
FROM ours JOIN pg_index ON indrelid = ours.oid
UNION ALL
SELECT 'trigger', relname, tgname, pg_get_triggerdef(pg_trigger.oid)
FROM ours JOIN pg_trigger ON tgrelid = ours.oid WHERE NOT tgisinternal
UNION ALL
SELECT 'policy', tablename, policyname, concat_ws(' ', permissive, roles::text, cmd, qual,
    with_check) FROM pg_policies WHERE schemaname = 'public'
UNION ALL
SELECT 'function', '', pg_proc.oid::regprocedure::text, pg_get_functiondef(pg_proc.oid)
FROM pg_proc JOIN pg_language ON pg_language.oid = prolang
WHERE pronamespace = 'public'::regnamespace AND lanname IN ('sql', 'plpgsql')
"""
_RESTRICTS = ("required column", "constraint", "hold on rows of", "unique index", "policy")
"""What makes statements fail that an older version runs on a table which it knows."""


def facts(connection: psycopg.Connection[Any]) -> set[_Fact]:
    """Return what the catalogs say of our tables and functions."""
    return {_Fact(*row) for row in connection.execute(_FACTS.encode()).fetchall()}


def faults(before: set[_Fact], after: set[_Fact]) -> Sequence[str]:
    """Return why a server that knows `before` cannot go on with `after`; nothing: it can."""
    tables = {one.table for one in before} - {TENANTS}
    gone = [f"{one.kind} {one.table} {one.name} is not as it was" for one in before - after]
    added = [
        f"{one.kind} {one.table} {one.name} restricts what is there"
        for one in after - before
        if one.kind in _RESTRICTS and one.table in tables
    ]
    return sorted(gone + added)


def ended_version(statements: str) -> tuple[int, ...] | None:
    """Return the version that a step names: servers before it cannot run beside the step."""
    found = ENDS.search(statements)
    return None if found is None else tuple(map(int, found.groups()))


def test_servers_of_the_version_before_run_beside_each_step(empty_database_url: str) -> None:
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        before: set[_Fact] = set()
        for step in migrations():
            connection.execute(step.statements.encode())
            after = facts(connection)
            found, ended = faults(before, after), ended_version(step.statements)
            assert (found == []) == (ended is None), (step.name, found)
            assert ended is None or ended <= tuple(map(int, VERSION.split("."))), step.name
            before = after
    assert {"threads", "records", "nodes", "environments"} <= {one.table for one in before}


STEPS: Sequence[tuple[str, Sequence[str]]] = [
    ("CREATE TABLE later (id integer PRIMARY KEY)", []),
    ("ALTER TABLE threads ADD COLUMN later text", []),
    ("ALTER TABLE threads ADD COLUMN later text NOT NULL DEFAULT ''", []),
    ("CREATE INDEX later ON threads (name)", []),
    (
        "ALTER TABLE threads ADD COLUMN later text NOT NULL",
        ["required column threads later restricts what is there"],
    ),
    ("ALTER TABLE threads DROP COLUMN git_info", ["column threads git_info is not as it was"]),
    (
        "ALTER TABLE threads RENAME COLUMN git_info TO git",
        ["column threads git_info is not as it was"],
    ),
    (
        "ALTER TABLE threads ALTER COLUMN epoch TYPE bigint",
        ["column threads epoch is not as it was"],
    ),
    (
        "ALTER TABLE threads ALTER COLUMN name SET NOT NULL",
        [
            "column threads name is not as it was",
            "required column threads name restricts what is there",
        ],
    ),
    (
        "ALTER TABLE nodes ALTER COLUMN version DROP DEFAULT",
        [
            "column nodes version is not as it was",
            "required column nodes version restricts what is there",
        ],
    ),
    (
        "ALTER TABLE threads ADD CONSTRAINT named CHECK (name <> '')",
        ["constraint threads named restricts what is there"],
    ),
    (
        "CREATE UNIQUE INDEX one_name ON threads (name)",
        ["unique index threads one_name restricts what is there"],
    ),
    (
        "CREATE TABLE later (tenant integer, id uuid, CONSTRAINT of_thread "
        "FOREIGN KEY (tenant, id) REFERENCES threads)",
        ["hold on rows of threads of_thread restricts what is there"],
    ),
    (
        "CREATE POLICY named ON threads AS RESTRICTIVE USING (name <> '')",
        ["policy threads named restricts what is there"],
    ),
    (
        "DO $$ BEGIN EXECUTE 'DROP FUNCTION found_names(text, integer)'; END $$",
        ["function  found_names(text,integer) is not as it was"],
    ),
]


def test_a_step_that_takes_something_away_is_found(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        before = facts(connection)
        for step, expected in STEPS:
            with connection.transaction(force_rollback=True):
                connection.execute(step.encode())
                assert faults(before, facts(connection)) == expected, step
        assert facts(connection) == before


def test_a_step_can_say_that_it_ends_a_version() -> None:
    assert ended_version("-- Ends servers before 0.2.0: epochs are larger.\nSELECT 1;") == (0, 2, 0)
    assert ended_version("-- Ends servers before 0.2.0:\nSELECT 1;") is None
