"""The stores of a server.

Source: docs/architecture.md, "Threads on disk".
"""

from dataclasses import dataclass
from pathlib import Path

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


def open_stores(home: Path, address: str | None = None) -> Stores:
    """Make the stores of a home; each is opened by its own `open`.

    `address` is where clients find this process, for what other processes are told.
    """
    return Stores(FileStore(home, address), FileSignals(home), running_servers(home))
