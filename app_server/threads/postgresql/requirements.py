"""What a database must be for threads to be kept in it; each fault says what to do. Blocks.

Source: docs/scale.md, "Settings", "Migrations", "Tenants".
"""

from typing import Any

from app_server.threads.failures import StoreUnavailable
from app_server.threads.postgresql.database import Connection, Database
from app_server.threads.postgresql.migrations import migrations, schema_version

OLDEST_SERVER = 150_000
"""As PostgreSQL counts: 15.0."""
TABLES = (
    "nodes",
    "threads",
    "records",
    "outlines",
    "turns",
    "texts",
    "named",
    "signals",
    "ledgers",
    "wakes",
    "filing",
    "environments",
    "spending",
    "notifications",
    "notification_targets_disabled",
    "notification_runs",
    "operations",
)
"""All that have a column `tenant`, but for `tenants` itself."""
OF_OWNER = ("texts", "named")
"""Tables in which the functions of searches, which are their owner's, see all rows."""
_RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE")


class StoreUnusable(StoreUnavailable):
    """The database is none that threads could be kept in; the text says what to do."""

    def __init__(self, text: str) -> None:
        super().__init__(text, "databaseUnusable", retriable=False)


def require_usable(database: Database) -> None:
    """Check the server, the schema, and the rights of the role.

    Raises:
        StoreUnusable: the first fault that is found.
        StoreUnavailable: the database cannot be asked.
    """
    with database.connection() as connection:
        require_server(connection)
        _require_readable(connection)
        _require_schema(connection)
        _require_role(connection)


def require_server(connection: Connection) -> None:
    """Check version and encoding, and that it takes writes.

    Raises:
        StoreUnusable
    """
    version = connection.info.server_version
    if version < OLDEST_SERVER:
        raise StoreUnusable(
            f"the database runs PostgreSQL {version // 10_000}; 15 or newer is needed"
        )
    # Of a database without an encoding texts come as bytes.
    (encoding,) = _one(connection, "SELECT current_setting('server_encoding')::name")
    encoding = encoding.decode() if isinstance(encoding, bytes) else encoding
    if encoding != "UTF8":
        raise StoreUnusable(
            f"the encoding of the database is {encoding}; make one with "
            "CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0"
        )
    if _one(connection, "SELECT pg_is_in_recovery()")[0]:
        raise StoreUnusable("the database is a standby; name the primary in the setting `store`")


def require_maker(connection: Connection) -> None:
    """Check that the role may make the tables, and would be kept to its own rows in them.

    Raises:
        StoreUnusable
    """
    role = _require_bound_role(connection)
    _require_readable(connection)
    may_make, name = _one(
        connection,
        "SELECT has_schema_privilege(current_schema(), 'CREATE') "
        "AND has_database_privilege(current_database(), 'CREATE'), current_database()::text",
    )
    if schema_version(connection) == 0 and not may_make:
        raise StoreUnusable(
            f'the role {role} may not make tables; run ALTER DATABASE "{name}" OWNER TO "{role}"'
        )


def _require_readable(connection: Connection) -> None:
    role, readable = _one(
        connection,
        "SELECT current_user::text, coalesce(bool_and(has_table_privilege(oid, 'SELECT')), true) "
        "FROM pg_class WHERE oid IN (to_regclass('schema_versions'), to_regclass('tenants'))",
    )
    if not readable:
        raise StoreUnusable(
            f"the role {role} may not look at the tables; run GRANT SELECT ON schema_versions TO "
            f'"{role}"; GRANT SELECT, INSERT ON tenants TO "{role}"'
        )


def _require_schema(connection: Connection) -> None:
    version, known = schema_version(connection), migrations()[-1].version
    if version == 0:
        raise StoreUnusable("the database has no tables of threads; run `app-server store migrate`")
    if version < known:
        raise StoreUnusable(
            f"the tables of the database have version {version} of {known}; run "
            "`app-server store migrate`"
        )
    if version > known:
        raise StoreUnusable(
            f"the tables of the database have version {version}, and this server knows {known}; "
            "install the version that migrated them, or a newer one"
        )


def _require_bound_role(connection: Connection) -> str:
    """Return the name of the role, which row-level security binds."""
    role, is_super, bypasses = _one(
        connection,
        "SELECT current_user::text, rolsuper, rolbypassrls FROM pg_roles "
        "WHERE rolname = current_user",
    )
    if is_super or bypasses:
        mend = "NOSUPERUSER" if is_super else "NOBYPASSRLS"
        raise StoreUnusable(
            f"the role {role} sees the rows of every tenant; use another one, or run "
            f'ALTER ROLE "{role}" {mend}'
        )
    return str(role)


def _require_role(connection: Connection) -> None:
    role = _require_bound_role(connection)
    (tenant,) = _one(connection, "SELECT current_tenant()")
    if tenant is None:
        raise StoreUnusable(f"the role {role} is no tenant; run `app-server store migrate` as it")
    for table in TABLES:
        enabled, forced = _one(
            connection,
            "SELECT relrowsecurity, relforcerowsecurity FROM pg_class WHERE oid = %s::regclass",
            table,
        )
        if not enabled or not (forced or table in OF_OWNER):
            force = "" if table in OF_OWNER else ", FORCE ROW LEVEL SECURITY"
            raise StoreUnusable(
                f"rows of {table} are not kept apart by role; run ALTER TABLE {table} "
                f"ENABLE ROW LEVEL SECURITY{force}"
            )
        for right in _RIGHTS:
            if not _one(connection, "SELECT has_table_privilege(%s, %s)", table, right)[0]:
                raise StoreUnusable(
                    f"the role {role} may not write; run GRANT {', '.join(_RIGHTS)} ON "
                    f'{", ".join(TABLES)} TO "{role}"'
                )


def _one(connection: Connection, statement: str, *values: Any) -> tuple[Any, ...]:
    row = connection.execute(statement.encode(), values).fetchone()
    assert row is not None
    return row
