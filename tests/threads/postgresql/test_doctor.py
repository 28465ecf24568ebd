"""store in PostgreSQL: what `app-server doctor` says of the database."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from app_server.threads.postgresql.checks import share_a_session
from app_server.threads.postgresql.database import Database
from app_server.threads.postgresql.migrations import migrations
from app_server.threads.postgresql.signals.ledger import PostgresLedger
from tests.support.postgresql import ROLE, Cluster, name_of
from tests.support.processes import run_cli
from tests.support.receiver.wakes import stored_timer

pytestmark = [pytest.mark.postgresql, pytest.mark.process]


def looked(home: Path, url: str) -> dict[str, Any]:
    ended = run_cli(
        *("doctor", "--home", str(home), "--only", "database", "--json"), APP_SERVER_STORE=url
    )
    assert "pass-w0rd" not in ended.stdout + ended.stderr
    (check,) = json.loads(ended.stdout)["checks"]
    assert ended.returncode == (0 if check["status"] == "ok" else 1)
    found: dict[str, Any] = check
    return found


def test_a_good_database_and_settings_that_lose_threads(
    tmp_path: Path, database_url: str, cluster: Cluster
) -> None:
    url = database_url.replace("tests@", "tests:pass-w0rd@")
    # The cluster of tests does not sync.
    check = looked(tmp_path, url)
    assert (check["status"], check["message"]) == (
        "warning",
        database_url.replace("tests@", "***@"),
    )
    assert check["details"][0].endswith(
        f"role {ROLE}, tables of version {migrations()[-1].version}"
    )
    assert check["details"][1:] == ["fsync is off: a crash of its machine can damage all threads"]
    cluster.administer(f"ALTER DATABASE {name_of(url)} SET synchronous_commit = off")
    check = looked(tmp_path, url)
    assert check["details"][2:] == [
        "synchronous_commit is off: what clients were told is stored can be lost"
    ]
    assert check["todo"] == (
        "set fsync = on in postgresql.conf, and restart PostgreSQL; "
        f'run ALTER ROLE "{ROLE}" SET synchronous_commit = on'
    )


def test_nodes_with_other_settings_and_without_a_lease_are_named(
    tmp_path: Path, database_url: str, cluster: Cluster
) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        for pid, digest, lease in ((1, "a", "1h"), (2, "a", "1h"), (3, "b", "1h"), (4, "a", "-1h")):
            connection.execute(
                "INSERT INTO nodes (id, host, pid, started_at, address, version, settings_digest, "
                "expires_at) VALUES (gen_random_uuid(), 'h', %s, 0, %s, '1.0', %s, "
                "clock_timestamp() + %s::interval)",
                (pid, f"ws://10.0.0.{pid}:4500", digest, lease),
            )
    check = looked(tmp_path, database_url)
    texts = [
        f"node of version 1.0 on h, process {pid}, at ws://10.0.0.{pid}:4500" for pid in range(1, 5)
    ]
    assert check["details"][2:] == [
        *texts[:2],
        f"{texts[2]}: its settings are not those of the other nodes",
        f"{texts[3]}: its lease ran out, so it cannot reach the database",
    ]
    assert check["todo"].split("; ")[1:] == [
        "look at that node, and at its network",
        "give all nodes the same config.toml, requirements, rules and hooks",
    ]


def test_databases_that_cannot_be_used(
    tmp_path: Path, empty_database_url: str, cluster: Cluster
) -> None:
    check = looked(tmp_path, empty_database_url)
    assert (check["status"], check["details"], check["todo"]) == (
        "error",
        ["the database has no tables of threads"],
        "run `app-server store migrate`",
    )
    check = looked(tmp_path, f"postgresql://tests:pass-w0rd@/nowhere?host={cluster.folder}")
    assert check["status"] == "error"
    assert 'database "nowhere" does not exist' in check["details"][0]
    assert check["todo"].startswith("see that PostgreSQL runs there")
    check = looked(tmp_path, "mysql://tests:pass-w0rd@h/d")
    assert (check["status"], check["todo"]) == (
        "error", "correct that setting; no server starts before"
    )  # fmt: skip


def test_files_need_no_database(tmp_path: Path) -> None:
    check = looked(tmp_path, "")
    assert (check["status"], check["message"]) == ("ok", "threads are kept in files")


def test_one_session_for_two_connections_is_noticed(database_url: str) -> None:
    with (
        psycopg.connect(database_url, autocommit=True) as one,
        psycopg.connect(database_url, autocommit=True) as other,
    ):
        assert not share_a_session(one, other)
        # As a pooler in transaction mode gives one session to both.
        assert share_a_session(one, one)


def test_receivers_with_dead_letters_and_those_that_are_gone_are_named(
    tmp_path: Path, database_url: str
) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        for target, state in (("a", "dead"), ("b", "dead"), ("b", "delivered")):
            connection.execute(
                "INSERT INTO notifications (target, id, label, thread_id, event, subject, body, "
                "run, created_at_ms, is_open, state, attempts, next_at_ms, claimed_until_ms) "
                "VALUES (%s, %s, %s, 't', 'turnCompleted', '1', '', 'r', 1, false, %s, 1, 0, 0)",
                (target, state, f"webhook {target}", state),
            )
        connection.execute(
            "INSERT INTO notification_targets_disabled (target, reason) "
            "VALUES ('a', 'answered 410')"
        )
    assert looked(tmp_path, database_url)["details"][2:] == [
        "webhook a: 1 dead letter",
        "webhook b: 1 dead letter",
        "webhook a answered 410, and is sent nothing more",
    ]


def test_wakes_are_counted_and_one_that_is_overdue_is_named(
    tmp_path: Path, database_url: str
) -> None:
    database = Database(database_url)
    database.open()
    try:
        wakes = PostgresLedger(database).wakes
        wakes.add(stored_timer("due", time.time_ns() // 1_000_000 - 301_000))
        wakes.add(replace(stored_timer("gone", None), state="lost"))
    finally:
        database.close()
    check = looked(tmp_path, database_url)
    assert (check["status"], check["details"][2:]) == (
        "warning",
        [
            "1 open wake",
            "1 lost wake of the last 30 days, of which threads were told",
            "a wake is overdue for 5 minutes",
        ],
    )
