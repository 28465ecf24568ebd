"""What an operator should know of a database of threads, beside whether it can be used. Blocks.

Source: docs/operations.md, "Doctor"; docs/scale.md, "Operation".
"""

import time
from collections import Counter

from app_server.threads.checks import Check, note_receivers, note_wakes
from app_server.threads.failures import StoreUnavailable
from app_server.threads.postgresql.database import Connection, Database
from app_server.threads.postgresql.migrations import schema_version
from app_server.threads.postgresql.outbox import DEAD_LETTERS, DISABLED
from app_server.threads.postgresql.requirements import StoreUnusable, require_usable
from app_server.threads.postgresql.signals.wakes import COUNTS as WAKE_COUNTS

_SERVER = """
SELECT current_setting('server_version'), current_user::text, current_setting('fsync'),
    current_setting('synchronous_commit'), current_setting('synchronous_standby_names') <> ''
"""
_NODES = """
SELECT host, pid, address, version, settings_digest, expires_at < clock_timestamp()
FROM nodes WHERE NOT dead ORDER BY lock
"""
_POOLED = (
    "a pooler in transaction mode is in between: it lends one session to several connections, so "
    "the lock of a server would be another one's"
)
_ONLY_WITH_STANDBYS = ("local", "remote_write")
"""Values of `synchronous_commit` that are as good as `on` without a synchronous standby."""


def check_database(database: Database, shown: str) -> Check:
    """Look at a database as a server that starts does, and at its settings.

    `shown` is its URL without a password.
    """
    check = Check("database", message=shown)
    try:
        database.open()
    except StoreUnavailable as exc:
        return _refused(check, exc)
    try:
        require_usable(database)
        with database.connection() as connection:
            _look(connection, check)
            _look_at_nodes(connection, check)
            note_receivers(
                check,
                connection.execute(DEAD_LETTERS.encode()).fetchall(),
                connection.execute(DISABLED.encode()).fetchall(),
            )
            wakes = connection.execute(WAKE_COUNTS.encode()).fetchone()
            assert wakes is not None
            note_wakes(check, (wakes[0], wakes[1], wakes[2]), time.time_ns() // 1_000_000)
            with database.connect() as other:
                if share_a_session(other, connection):
                    check.add("error", _POOLED)
                    check.advise("connect to PostgreSQL itself, or to a pooler in session mode")
    except StoreUnavailable as exc:
        return _refused(check, exc)
    finally:
        database.close()
    return check


def _refused(check: Check, failure: StoreUnavailable) -> Check:
    text, _, todo = str(failure).partition("; ")
    check.add("error", text)
    check.advise(todo or "no server starts with this database before that is mended")
    if not isinstance(failure, StoreUnusable):
        check.advise("threads cannot be read meanwhile")
    return check


def _look(connection: Connection, check: Check) -> None:
    row = connection.execute(_SERVER).fetchone()
    assert row is not None
    version, role, fsync, commit, has_standbys = row
    check.add(
        "ok",
        f"PostgreSQL {version}, role {role}, tables of version {schema_version(connection)}",
    )
    if fsync == "off":
        check.add("warning", "fsync is off: a crash of its machine can damage all threads")
        check.advise("set fsync = on in postgresql.conf, and restart PostgreSQL")
    if commit == "off" or (commit in _ONLY_WITH_STANDBYS and has_standbys):
        check.add(
            "warning",
            f"synchronous_commit is {commit}: what clients were told is stored can be lost",
        )
        check.advise(f'run ALTER ROLE "{role}" SET synchronous_commit = on')


def _look_at_nodes(connection: Connection, check: Check) -> None:
    nodes = connection.execute(_NODES).fetchall()
    # A node that has just begun has not read its settings yet.
    digests = Counter(node[4] for node in nodes if node[4])
    (usual, _), *others = digests.most_common() or [("", 0)]
    for host, pid, address, version, digest, is_over in nodes:
        text = f"node of version {version} on {host}, process {pid}"
        text += "" if address is None else f", at {address}"
        if is_over:
            check.add("warning", f"{text}: its lease ran out, so it cannot reach the database")
            check.advise("look at that node, and at its network")
        elif digest not in ("", usual):
            check.add("warning", f"{text}: its settings are not those of the other nodes")
        else:
            check.add("ok", text)
    if others:
        check.advise("give all nodes the same config.toml, requirements, rules and hooks")


def share_a_session(one: Connection, other: Connection) -> bool:
    """Whether a pooler in transaction mode gives two connections one session in turn."""
    with one.transaction():
        first = _backend(one)
    return _backend(other) == first


def _backend(connection: Connection) -> int:
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    assert row is not None
    return int(row[0])
