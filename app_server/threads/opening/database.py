"""Work on the database of threads, for commands. Blocks; psycopg is imported with this module."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from app_server.config.store_url import StoreUrl
from app_server.threads.checks import Check
from app_server.threads.failures import StoreUnavailable
from app_server.threads.nodes import Node
from app_server.threads.opening.copies import Copied, Say, export_home, import_home
from app_server.threads.postgresql.checks import check_database
from app_server.threads.postgresql.database import Database
from app_server.threads.postgresql.migrations import migrate, schema_version
from app_server.threads.postgresql.nodes import all_nodes
from app_server.threads.postgresql.requirements import (
    require_maker,
    require_server,
    require_usable,
)

T = TypeVar("T")


def check(url: str) -> int:
    """Look whether a server could use a database; the version of its tables.

    Raises:
        StoreUnavailable: it could not; the text says what to do.
    """
    database = Database(url)
    database.open()
    try:
        require_usable(database)
        with database.connection() as connection:
            return schema_version(connection)
    finally:
        database.close()


def look(url: StoreUrl) -> Check:
    """Say what an operator should know of a database; see `check_database`."""
    try:
        return check_database(Database(url.url), str(url))
    except StoreUnavailable as exc:
        # libpq cannot read the URL.
        check = Check("database", message=str(url))
        text, _, todo = str(exc).partition("; ")
        check.add("error", text)
        check.advise(todo)
        return check


def nodes(url: str) -> Sequence[Node]:
    """Return the nodes of a database; see Nodes.all.

    Raises:
        StoreUnavailable: it does not answer, or is none that a server could use.
    """
    return _with(url, all_nodes)


def migrate_database(url: str, on_step: Callable[[str], None]) -> int:
    """Bring the tables of a database to the version of this program; `on_step` gets their names.

    Raises:
        StoreUnavailable
    """
    database = Database(url)
    with database.connect() as connection:
        require_server(connection)
        require_maker(connection)
    return migrate(database, lambda step: on_step(step.name))


def import_database(url: str, home: Path, say: Say) -> Copied:
    """Copy a home into a database; see `import_home`."""
    return _with(url, lambda database: import_home(home, database, say))


def export_database(url: str, home: Path, say: Say) -> Copied:
    """Copy a database into a home; see `export_home`."""
    return _with(url, lambda database: export_home(database, home, say))


def _with(url: str, work: Callable[[Database], T]) -> T:
    database = Database(url)
    database.open()
    try:
        require_usable(database)
        return work(database)
    finally:
        database.close()
