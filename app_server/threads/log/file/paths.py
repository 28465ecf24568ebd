"""Where the log of a thread is. The path follows from the id; only `exists` does I/O."""

import uuid
from datetime import UTC, datetime
from pathlib import Path

from app_server.threads.failures import InvalidThreadId

LAST_DAY_MS = 253_402_214_400_000
"""The last day that a folder can be named after; an id may hold later times."""


class LogPaths:
    """The logs below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path_of(self, thread_id: str) -> Path:
        """Return where a thread's log is or would be.

        Raises:
            InvalidThreadId: not a UUID in its usual form.
        """
        try:
            parsed = uuid.UUID(thread_id)
        except ValueError:
            raise InvalidThreadId(thread_id) from None
        if str(parsed) != thread_id:
            raise InvalidThreadId(thread_id)
        born_ms = parsed.int >> 80
        if parsed.version != 7 or born_ms > LAST_DAY_MS:
            return self.folder / "other" / f"{thread_id}.jsonl"
        born = datetime.fromtimestamp(born_ms / 1000, UTC)
        return self.folder / f"{born:%Y/%m/%d}" / f"{thread_id}.jsonl"

    def exists(self, thread_id: str) -> bool:
        """Whether there is a log; text that is no id has none."""
        try:
            return self.path_of(thread_id).exists()
        except InvalidThreadId:
            return False
