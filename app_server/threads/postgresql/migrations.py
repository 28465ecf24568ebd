"""The schema of the database: numbered files of SQL, each run once, forward only. Blocks.

Each file is one transaction. Who migrates holds a lock of the database, so a second one waits; one
that is killed has left whole steps behind, and the next goes on.
Source: docs/scale.md, "Migrations".
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files

from psycopg import sql

from app_server.threads.postgresql.database import Connection, Database, database_failures

_LOCK = 0x61707073
"""Key of the advisory lock; no other lock of this program is in the space of 64 bits."""
_VERSION = "SELECT max(version) FROM schema_versions"


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema."""

    version: int
    name: str
    statements: str


def migrations() -> Sequence[Migration]:
    """Return all steps that this program knows, in their order."""
    folder = files("app_server.threads.postgresql").joinpath("schema")
    found = sorted(file.name for file in folder.iterdir() if file.name.endswith(".sql"))
    return [
        Migration(int(name.split("_")[0]), name, folder.joinpath(name).read_text("utf-8"))
        for name in found
    ]


def schema_version(connection: Connection) -> int:
    """Return the newest step that the database has; 0: none.

    Raises:
        StoreUnavailable
    """
    with database_failures():
        (found,) = _one(connection, "SELECT to_regclass('schema_versions')")
        if found is None:
            return 0
        (version,) = _one(connection, _VERSION)
    return version or 0


def migrate(database: Database, on_step: Callable[[Migration], None] | None = None) -> int:
    """Run the steps that are missing, and make the connecting role a tenant.

    `on_step` is called before each step. Returns the version afterwards, which is a later one than
    this program knows if a newer program has migrated.

    Raises:
        StoreUnavailable: a step failed; those before it are done.
    """
    connection = database.connect()
    with connection, database_failures():
        # Steps on large tables take longer than requests may.
        connection.execute("SET statement_timeout = 0")
        connection.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
        version = schema_version(connection)
        for step in migrations():
            if step.version > version:
                if on_step is not None:
                    on_step(step)
                _run(connection, step)
                version = step.version
        connection.execute(
            "INSERT INTO tenants (role) VALUES (current_user) ON CONFLICT DO NOTHING"
        )
    return version


def _run(connection: Connection, step: Migration) -> None:
    with connection.transaction():
        connection.execute(
            "CREATE TABLE IF NOT EXISTS schema_versions "
            "(version integer PRIMARY KEY, name text NOT NULL, at timestamptz DEFAULT now())"
        )
        # Our own file, without parameters: several statements at once.
        connection.execute(sql.SQL(step.statements))
        connection.execute(
            "INSERT INTO schema_versions (version, name) VALUES (%s, %s)", (step.version, step.name)
        )


def _one(connection: Connection, statement: str) -> tuple[int | None]:
    row = connection.execute(statement.encode()).fetchone()
    assert row is not None
    return (row[0],)
