"""The outbox of notifications of a home, which may not be there yet.

Source: docs/notifications.md, "Outbox".
"""

from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from app_server.runtime.loader import load
from app_server.threads.outbox import NotificationOutbox

if TYPE_CHECKING:
    from app_server.threads.files.outbox import FileOutbox


def outbox_path(home: Path) -> Path:
    """Return where the outbox of a home is or would be."""
    return home / "notifications" / "outbox.sqlite3"


class FileNotifications:
    """The file of the outbox; its code is loaded when it is opened."""

    def __init__(self, home: Path) -> None:
        self._path = outbox_path(home)

    async def exists(self) -> bool:
        """Whether any server of the home has begun the outbox. One stat, on the event loop."""
        return self._path.exists()

    async def open(self) -> NotificationOutbox:
        """Open the outbox, or begin it; see OutboxStore.open."""
        outbox = await load(_outbox)
        return await anyio.to_thread.run_sync(outbox, self._path)


def _outbox() -> "type[FileOutbox]":
    from app_server.threads.files.outbox import FileOutbox

    return FileOutbox
