"""The stores of a server.

Source: docs/architecture.md, "Threads on disk".
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from app_server.config.store_url import StoreUrl
from app_server.config.values import ConfigError
from app_server.runtime.loader import LoadFailed, load
from app_server.threads.budgets import SharedBudgets
from app_server.threads.environments import AddedEnvironments
from app_server.threads.files.budgets import FileBudgets
from app_server.threads.files.environments import FileEnvironments
from app_server.threads.files.notifications import FileNotifications
from app_server.threads.files.operations import FileOperations
from app_server.threads.files.signals import FileSignals
from app_server.threads.files.store import FileStore
from app_server.threads.ledger import SignalStore
from app_server.threads.news import ThreadNews
from app_server.threads.nodes import ALONE, Nodes, NodeSettings
from app_server.threads.opening.servers import running_servers
from app_server.threads.operations import OperationStore
from app_server.threads.outbox import OutboxStore
from app_server.threads.servers import RunningServers
from app_server.threads.store import ThreadStore

if TYPE_CHECKING:
    from app_server.threads.postgresql.database import Database
    from app_server.threads.postgresql.environments import PostgresEnvironments
    from app_server.threads.postgresql.news import PostgresNews
    from app_server.threads.postgresql.operations import PostgresOperations
    from app_server.threads.postgresql.outbox import PostgresNotifications
    from app_server.threads.postgresql.signals.ledger import PostgresSignals
    from app_server.threads.postgresql.store import PostgresStore
    from app_server.threads.postgresql.usage.budgets import PostgresBudgets


@dataclass(frozen=True, slots=True)
class Stores:
    """What a server keeps; nothing is open yet."""

    threads: ThreadStore
    signals: SignalStore
    servers: RunningServers
    environments: AddedEnvironments
    notifications: OutboxStore
    operations: OperationStore
    budgets: SharedBudgets
    nodes: Nodes | None = None
    """With a database alone: its servers, and the lease of this one."""
    news: ThreadNews | None = None
    """With a database alone: what its servers tell one another of threads."""


async def open_stores(
    home: Path, store: StoreUrl | None = None, node: NodeSettings = ALONE
) -> Stores:
    """Make the stores of a home, or of a database; each is opened by its own `open`.

    `node` is what this process is to others that share them.

    Raises:
        ConfigError: the library of this store is not installed, or cannot read its URL.
        LoadFailed: its code cannot be imported now.
    """
    if store is not None:
        try:
            made = await load(_postgresql)
        except LoadFailed as exc:
            if isinstance(exc.__cause__, ModuleNotFoundError):
                raise ConfigError(f"{store} cannot be used: {NO_PSYCOPG}") from exc
            raise
        database = made.database(store.url)
        threads = made.threads(database, node)
        return Stores(
            threads,
            made.signals(database),
            running_servers(home),
            made.environments(database),
            made.notifications(database),
            made.operations(database, threads.nodes),
            made.budgets(database),
            threads.nodes,
            made.news(database),
        )
    return Stores(
        FileStore(home, node.address),
        FileSignals(home),
        running_servers(home),
        FileEnvironments(),
        FileNotifications(home),
        FileOperations(home),
        FileBudgets(home),
    )


NO_PSYCOPG = "PostgreSQL's client library is missing; run pip install 'app-server[postgresql]'"


class _Postgresql(NamedTuple):
    database: "type[Database]"
    threads: "type[PostgresStore]"
    signals: "type[PostgresSignals]"
    news: "type[PostgresNews]"
    environments: "type[PostgresEnvironments]"
    notifications: "type[PostgresNotifications]"
    operations: "type[PostgresOperations]"
    budgets: "type[PostgresBudgets]"


def _postgresql() -> _Postgresql:
    from app_server.threads.postgresql.database import Database
    from app_server.threads.postgresql.environments import PostgresEnvironments
    from app_server.threads.postgresql.news import PostgresNews
    from app_server.threads.postgresql.operations import PostgresOperations
    from app_server.threads.postgresql.outbox import PostgresNotifications
    from app_server.threads.postgresql.signals.ledger import PostgresSignals
    from app_server.threads.postgresql.store import PostgresStore
    from app_server.threads.postgresql.usage.budgets import PostgresBudgets

    return _Postgresql(
        Database,
        PostgresStore,
        PostgresSignals,
        PostgresNews,
        PostgresEnvironments,
        PostgresNotifications,
        PostgresOperations,
        PostgresBudgets,
    )
