"""The file of the index: its tables, and which process fills them. Everything here blocks."""

import errno
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from app_server.runtime.files.sqlite import as_disk_failures, open_rebuildable, version_of
from app_server.threads.codex.threads import Seen
from app_server.threads.index.rows import COLUMNS
from app_server.threads.log.file.locks import LockBusy, SharedLock, WriterLock, short_lock

SCHEMA_VERSION = 2

_SCHEMA = f"""
CREATE TABLE threads ({", ".join(COLUMNS)}, open INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (id));
CREATE INDEX by_created ON threads (archived, has_content, created_at_ms, id);
CREATE INDEX by_updated ON threads (archived, has_content, updated_at_ms, id);
CREATE INDEX by_recency ON threads (archived, has_content, recency_at_ms, id);
CREATE INDEX by_section ON threads (section_id, section_rank, id) WHERE section_id IS NOT NULL;
CREATE INDEX by_project ON threads (project_id, recency_at_ms) WHERE project_id IS NOT NULL;
CREATE INDEX by_parent ON threads (parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX by_attachments ON threads (id) WHERE attachments <> '[]';
CREATE INDEX by_open ON threads (id) WHERE open;
"""

_SEEN = f"CREATE TABLE IF NOT EXISTS seen ({', '.join(Seen._fields)}, PRIMARY KEY (thread_id));"


class IndexUnusable(OSError):
    """The index cannot be opened, read or written; the logs are as they were."""


def index_failures(path: Path) -> AbstractContextManager[None]:
    """Translate failures of SQLite into those of a disk, naming the file."""
    return as_disk_failures(lambda number, text: IndexUnusable(number, text, str(path)))


class IndexFile:
    """One SQLite file in WAL mode; safe to call from any worker thread."""

    def __init__(self, path: Path) -> None:
        """Open the index, or make it.

        One of another version and one that is no database are thrown away, unless another process
        uses it. `is_new` says that there
        may be threads it does not know; one process at a time fills it, the others wait for that:
        `is_made_elsewhere`.

        Raises:
            IndexUnusable: the file cannot be made or opened.
            OSError: the folder cannot be made.
        """
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = path
        self._lock = threading.Lock()
        self._making: WriterLock | None = None
        self._use = SharedLock(path.with_name("users.lock"))
        try:
            with index_failures(path):
                self._database, self.is_new = self._open()
        except BaseException:
            self._use.release()
            raise

    @property
    def is_made_elsewhere(self) -> bool:
        """Whether another process fills it now."""
        return self.is_new and self._making is None

    def _open(self) -> tuple[sqlite3.Connection, bool]:
        # Nobody replaces the file while somebody else looks what it is.
        with short_lock(self._path.with_name("schema.lock")):
            database = open_rebuildable(
                self._path,
                _SCHEMA + _SEEN,
                SCHEMA_VERSION,
                additions=_SEEN,
                before_replacing=self._require_only_user,
            )
            if version_of(database) == SCHEMA_VERSION:
                return database, False
            with suppress(LockBusy):
                self._making = WriterLock(self._path.with_name("rebuild.lock"))
            return database, True

    def _require_only_user(self) -> None:
        if not self._use.is_only_one():
            problem = "another process uses it, of another version; stop that, or use another home"
            raise IndexUnusable(errno.EBUSY, problem, str(self._path))

    def _stop_making(self) -> None:
        making, self._making = self._making, None
        if making is not None:
            making.release()

    def look_again(self) -> bool:
        """Whether what another process made is complete; take over if that one has died.

        Raises:
            OSError: the file cannot be opened.
        """
        with index_failures(self._path), self._lock:
            if version_of(self._database) != SCHEMA_VERSION:
                self._database.close()
                self._database, self.is_new = self._open()
            else:
                self.is_new = False
            return not self.is_new

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()
            self._stop_making()
            self._use.release()

    def mark_complete(self) -> None:
        """Note that every thread is in the index."""
        with self.transaction() as database:
            database.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        self.is_new = False
        self._stop_making()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Hold the file for writing, all or nothing."""
        with index_failures(self._path), self._lock, self._database:
            yield self._database

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Hold the connection for reading."""
        with index_failures(self._path), self._lock:
            yield self._database
