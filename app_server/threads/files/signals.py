"""The ledger of signals of a home, which may not be there yet.

Source: docs/signals.md, "Ledger".
"""

from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from app_server.runtime.loader import load
from app_server.threads.ledger import SignalLedger

if TYPE_CHECKING:
    from app_server.threads.files.ledger import Ledger


def ledger_path(home: Path) -> Path:
    """Return where the ledger of a home is or would be."""
    return home / "signals" / "ledger.sqlite3"


class FileSignals:
    """The file of the ledger; its code is loaded when it is opened."""

    def __init__(self, home: Path) -> None:
        self._path = ledger_path(home)

    async def exists(self) -> bool:
        """Whether any server of the home has begun the ledger.

        One stat, on the event loop: it is asked often, and a worker takes ten times that.
        """
        return self._path.exists()

    async def open(self) -> SignalLedger:
        """Open the ledger, or begin it; see SignalStore.open."""
        ledger = await load(_ledger)
        return await anyio.to_thread.run_sync(ledger, self._path)


def _ledger() -> "type[Ledger]":
    from app_server.threads.files.ledger import Ledger

    return Ledger
