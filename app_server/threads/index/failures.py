"""Failures of the indexes. No failure of an index changes what the logs have."""

from contextlib import AbstractContextManager
from pathlib import Path

from app_server.runtime.sqlite import as_disk_failures


class IndexUnusable(OSError):
    """The index cannot be opened, read or written; the logs are as they were."""


def index_failures(path: Path) -> AbstractContextManager[None]:
    """Translate failures of SQLite into those of a disk, naming the file."""
    return as_disk_failures(lambda number, text: IndexUnusable(number, text, str(path)))
