"""store in PostgreSQL: what a start says of a database that is none for threads."""

import asyncio
import re
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psycopg
import pytest

from app_server.config.store_url import STORE_VARIABLE
from app_server.threads.failures import StoreUnavailable
from app_server.threads.opening import database as work
from app_server.threads.postgresql import requirements
from app_server.threads.postgresql.database import Database
from app_server.threads.postgresql.migrations import migrate, migrations
from app_server.threads.postgresql.requirements import TABLES, StoreUnusable
from tests.support.fleet.nodes import url_of
from tests.support.fleet.proxy import DatabaseProxy
from tests.support.harness import environment_without
from tests.support.postgresql import ROLE, Cluster, name_of
from tests.support.processes import RUN_S, run_cli

pytestmark = pytest.mark.postgresql

NEWEST = migrations()[-1].version


def refused(url: str) -> str:
    with pytest.raises(StoreUnusable) as caught:
        work.check(url)
    assert (caught.value.reason, caught.value.retriable) == ("databaseUnusable", False)
    return str(caught.value)


def test_a_database_that_can_be_used_is_said_to_be_so(database_url: str) -> None:
    assert work.check(database_url) == NEWEST


def test_tables_that_are_missing_older_or_newer_are_named(
    empty_database_url: str, cluster: Cluster
) -> None:
    url = empty_database_url
    assert refused(url) == "the database has no tables of threads; run `app-server store migrate`"
    # What a migration that was killed before its first step leaves.
    cluster.administer("CREATE TABLE schema_versions (version integer)", name_of(url))
    cluster.administer(f"ALTER TABLE schema_versions OWNER TO {ROLE}", name_of(url))
    assert refused(url) == "the database has no tables of threads; run `app-server store migrate`"
    cluster.administer("DROP TABLE schema_versions", name_of(url))
    migrate(Database(url))
    cluster.administer("INSERT INTO schema_versions VALUES (999, 'later')", name_of(url))
    assert refused(url) == (
        f"the tables of the database have version 999, and this server knows {NEWEST}; install "
        "the version that migrated them, or a newer one"
    )


def test_an_older_schema_is_named_with_the_command(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = migrations()[-1]
    later = type(newest)(newest.version + 1, "later", "")
    monkeypatch.setattr(requirements, "migrations", lambda: [newest, later])
    assert refused(database_url) == (
        f"the tables of the database have version {NEWEST} of {NEWEST + 1}; run "
        "`app-server store migrate`"
    )


def test_a_role_that_sees_every_tenant_is_refused(database_url: str, cluster: Cluster) -> None:
    url = cluster.url(name_of(database_url), "postgres")
    text = (
        "the role postgres sees the rows of every tenant; use another one, or run "
        'ALTER ROLE "postgres" NOSUPERUSER'
    )
    assert refused(url) == text
    # Tables of a superuser are none that another role could use.
    with pytest.raises(StoreUnusable) as caught:
        work.migrate_database(url, print)
    assert str(caught.value) == text


def test_a_role_that_bypasses_row_level_security_is_told_the_statement(
    database_url: str, cluster: Cluster
) -> None:
    cluster.administer(f"ALTER ROLE {ROLE} BYPASSRLS")
    try:
        text = refused(database_url)
        assert text == (
            f"the role {ROLE} sees the rows of every tenant; use another one, or run "
            f'ALTER ROLE "{ROLE}" NOBYPASSRLS'
        )
        cluster.administer(text.split(", or run ")[1])
        assert work.check(database_url) == NEWEST
    finally:
        cluster.administer(f"ALTER ROLE {ROLE} NOBYPASSRLS")


def test_rights_are_looked_at_in_all_tables_of_tenants(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        found = connection.execute(
            "SELECT relname FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid "
            "WHERE attname = 'tenant' AND relkind IN ('r', 'p') AND NOT relispartition"
        )
        assert sorted(TABLES) == sorted(name for (name,) in found)


def test_a_role_that_may_not_make_tables_is_told_the_statement(
    empty_database_url: str, cluster: Cluster, guest: str
) -> None:
    name = name_of(empty_database_url)
    url = cluster.url(name, guest)
    with pytest.raises(StoreUnusable) as caught:
        work.migrate_database(url, print)
    text = str(caught.value)
    assert text == (
        f'the role guest may not make tables; run ALTER DATABASE "{name}" OWNER TO "guest"'
    )
    cluster.administer(text.split("; run ")[1])
    try:
        assert work.migrate_database(url, print) == NEWEST
        assert work.check(url) == NEWEST
    finally:
        cluster.administer(f"REASSIGN OWNED BY {guest} TO {ROLE}", name)


def test_a_url_that_libpq_does_not_take_is_said_with_what_to_do() -> None:
    with pytest.raises(StoreUnavailable) as caught:
        work.check("postgresql://127.0.0.1/threads?colour=pass-w0rd")
    assert str(caught.value) == (
        'invalid URI query parameter: "colour"; correct the setting `store`'
    )


@pytest.fixture
def guest(cluster: Cluster) -> Iterator[str]:
    cluster.administer("CREATE ROLE guest LOGIN")
    yield "guest"
    cluster.administer("DROP ROLE guest")


def test_a_role_that_is_no_tenant_or_may_not_write_is_refused(
    database_url: str, cluster: Cluster, guest: str
) -> None:
    name = name_of(database_url)
    url = cluster.url(name, guest)
    text = refused(url)
    assert text == (
        "the role guest may not look at the tables; run GRANT SELECT ON schema_versions TO "
        '"guest"; GRANT SELECT, INSERT ON tenants TO "guest"'
    )
    with pytest.raises(StoreUnusable, match="the role guest may not look at the tables"):
        work.migrate_database(url, print)
    cluster.administer(text.split("; run ")[1], name)
    assert refused(url) == ("the role guest is no tenant; run `app-server store migrate` as it")
    assert work.migrate_database(url, print) == NEWEST
    text = refused(url)
    assert text.startswith("the role guest may not write; run GRANT SELECT, INSERT, UPDATE, DELETE")
    cluster.administer(text.split("; run ")[1], name)
    assert work.check(url) == NEWEST
    with psycopg.connect(url, autocommit=True) as connection:
        for table in TABLES:
            connection.execute(f"DELETE FROM {table}")
    cluster.administer(f"REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {guest}", name)


def test_tables_that_do_not_keep_roles_apart_are_refused(
    database_url: str, cluster: Cluster
) -> None:
    name = name_of(database_url)
    for statement in ("NO FORCE ROW LEVEL SECURITY", "DISABLE ROW LEVEL SECURITY"):
        cluster.administer(f"ALTER TABLE records {statement}", name)
        text = refused(database_url)
        assert text == (
            "rows of records are not kept apart by role; run ALTER TABLE records "
            "ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY"
        )
        cluster.administer(text.split("; run ")[1], name)
        assert work.check(database_url) == NEWEST


def test_another_encoding_is_refused(cluster: Cluster) -> None:
    cluster.administer(
        f"CREATE DATABASE latin OWNER {ROLE} ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0"
    )
    try:
        url = cluster.url("latin")
        with pytest.raises(StoreUnusable, match="the encoding of the database is SQL_ASCII"):
            work.migrate_database(url, print)
        assert refused(url).startswith("the encoding of the database is SQL_ASCII; make one with")
    finally:
        cluster.administer("DROP DATABASE latin WITH (FORCE)")


TODO = (
    "; see that PostgreSQL runs there, and that host, port, database, role and password are those "
    "of the setting `store`, of PGPASSWORD or of ~/.pgpass"
)


def test_what_cannot_be_reached_is_said_in_one_line_with_what_to_do(
    database_url: str, cluster: Cluster
) -> None:
    name = name_of(database_url)
    with listening_socket() as silent:
        for url, text in (
            (f"postgresql://tests@/nowhere?host={cluster.folder}", 'database "nowhere" does not'),
            (f"postgresql://nobody-at-all@/{name}?host={cluster.folder}", 'role "nobody-at-all"'),
            ("postgresql://127.0.0.1:1/threads", "Connection refused"),
            (f"postgresql://127.0.0.1:{silent}/threads?connect_timeout=2", "timeout expired"),
        ):
            for command in (work.check, partial(work.migrate_database, on_step=print)):
                with pytest.raises(StoreUnavailable) as caught:
                    command(url)
                assert text in str(caught.value)
                assert str(caught.value).endswith(TODO)
                assert "\n" not in str(caught.value)


@contextmanager
def listening_socket() -> Iterator[int]:
    """Listen on a port, and never answer."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_wrong_password_is_said_without_it(database_url: str, cluster: Cluster) -> None:
    rules = cluster.folder / "data" / "pg_hba.conf"
    kept = rules.read_text()
    # Before the rules that let everybody in.
    rules.write_text(f"local {name_of(database_url)} {ROLE} scram-sha-256\n{kept}")
    cluster.administer(f"ALTER ROLE {ROLE} PASSWORD 'right'")
    cluster.administer("SELECT pg_reload_conf()")
    try:
        url = database_url.replace("tests@", "tests:wr0ng-one@")
        with pytest.raises(StoreUnavailable) as caught:
            while True:
                # The rules are read again a moment later.
                work.check(url)
        assert "password authentication failed for user" in str(caught.value)
        said = "".join(traceback.format_exception(caught.value)) + repr(Database(url))
        assert "wr0ng-one" not in said
        assert work.check(database_url.replace("tests@", "tests:right@")) == NEWEST
    finally:
        rules.write_text(kept)
        cluster.administer("SELECT pg_reload_conf()")


@pytest.mark.process
def test_a_server_does_not_start_and_shows_no_password(
    empty_database_url: str, tmp_path: str
) -> None:
    secret = "pass-w0rd"
    url = empty_database_url.replace("tests@", f"tests:{secret}@")
    for store, text in (
        (url, "run `app-server store migrate`"),
        (f"postgresql://u:{secret}@127.0.0.1:1/threads", "Connection refused"),
    ):
        ended = run_cli(
            *("--home", str(tmp_path), "--listen", "ws://127.0.0.1:0"), APP_SERVER_STORE=store
        )
        assert ended.returncode == 1
        # Nobody is told of an address where no request is served.
        (line,) = ended.stderr.splitlines()
        assert line.startswith("app-server:")
        assert text in line
        assert secret not in ended.stdout + ended.stderr


class _OlderServer(DatabaseProxy):
    """A PostgreSQL that says it is of version 14, as the clients of the library hear it."""

    def heard(self, piece: bytes) -> bytes:
        # The length of the value, which the message has, stays.
        return re.sub(rb"(server_version\0)\d\d", rb"\g<1>14", piece)


@pytest.mark.process
async def test_a_server_older_than_15_is_named_by_the_start(
    database_url: str, cluster: Cluster, tmp_path: Path
) -> None:
    text = "the database runs PostgreSQL 14; 15 or newer is needed"
    async with _OlderServer(cluster.folder).listening() as proxy:
        url = url_of([proxy], name_of(database_url))
        assert await asyncio.to_thread(refused, url) == text
        ended = await asyncio.to_thread(
            run_cli,
            *("--home", str(tmp_path), "--listen", "ws://127.0.0.1:0"),
            APP_SERVER_STORE=url,
        )
    assert (ended.returncode, ended.stderr) == (1, f"app-server: {text}\n")


@pytest.mark.process
def test_the_command_makes_checks_and_copies_tables(empty_database_url: str, tmp_path: str) -> None:
    words = ["--store", empty_database_url, "--home", str(tmp_path)]
    ended = [run_cli("store", command, *words) for command in ("check", "migrate", "check")]
    assert [one.returncode for one in ended] == [1, 0, 0]
    assert ended[0].stderr == (
        "app-server store: the database has no tables of threads; run `app-server store migrate`\n"
    )
    for command in ("import", "export"):
        copied = run_cli("store", command, *words)
        assert (copied.returncode, copied.stdout) == (
            0,
            "0 threads copied, 0 there already, 0 left out; 0 signals.\n",
        )


def test_a_standby_is_refused_until_it_is_promoted(cluster: Cluster, database_url: str) -> None:
    with cluster.standby() as standby:
        url = standby.url(name_of(database_url))
        assert refused(url) == (
            "the database is a standby; name the primary in the setting `store`"
        )
        standby.administer("SELECT pg_promote()")
        assert work.check(url) == NEWEST


@pytest.mark.process
def test_without_the_library_the_command_that_installs_it_is_named(tmp_path: Path) -> None:
    # A package that cannot be imported stands in for one that is not there.
    hidden = "import sys; sys.modules['psycopg'] = None; from app_server.cli.entry import main"
    url = "postgresql://127.0.0.1:1/threads"
    for words in (
        ["--home", str(tmp_path), "--listen", "ws://127.0.0.1:0", "--store", url],
        ["store", "check", "--home", str(tmp_path), "--store", url],
    ):
        ended = subprocess.run(
            [sys.executable, "-c", f"{hidden}; sys.exit(main())", *words],
            capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
            timeout=RUN_S, env=environment_without(STORE_VARIABLE),
        )  # fmt: skip
        assert ended.returncode == 1
        *_, line = ended.stderr.splitlines()
        assert line.endswith("run pip install 'app-server[postgresql]'")
