"""The stores of a server.

Source: docs/architecture.md, "Threads on disk".
"""

from dataclasses import dataclass
from pathlib import Path

from app_server.config.store_url import StoreUrl
from app_server.config.values import ConfigError
from app_server.threads.files.signals import FileSignals
from app_server.threads.files.store import FileStore
from app_server.threads.ledger import SignalStore
from app_server.threads.opening.servers import running_servers
from app_server.threads.servers import RunningServers
from app_server.threads.store import ThreadStore


@dataclass(frozen=True, slots=True)
class Stores:
    """What a server keeps; nothing is open yet."""

    threads: ThreadStore
    signals: SignalStore
    servers: RunningServers


async def open_stores(
    home: Path, address: str | None = None, store: StoreUrl | None = None
) -> Stores:
    """Make the stores of a home, or of a database; each is opened by its own `open`.

    `address` is where clients find this process, for what other processes are told.

    Raises:
        ConfigError: threads cannot be kept in this store.
    """
    if store is not None:
        raise ConfigError(f"threads cannot be kept in {store} yet: leave out the setting `store`")
    return Stores(FileStore(home, address), FileSignals(home), running_servers(home))
