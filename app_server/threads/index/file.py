"""The file of the index: its tables, and which process fills them. Everything here blocks."""

import errno
import sqlite3
from contextlib import suppress
from pathlib import Path

from app_server.runtime.files.sqlite import damaged, version_of
from app_server.threads.codex.threads import Seen
from app_server.threads.index.derived import DerivedFile, IndexUnusable, sum_of
from app_server.threads.index.rows import COLUMN_NAMES, COLUMNS
from app_server.threads.log.file.locks import LockBusy, SharedLock, WriterLock

SCHEMA_VERSION = 3

_SCHEMA = f"""
CREATE TABLE threads (
    {", ".join(COLUMNS)}, sum INTEGER, open INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (id)
);
CREATE INDEX by_created ON threads (archived, has_content, created_at_ms, id);
CREATE INDEX by_updated ON threads (archived, has_content, updated_at_ms, id);
CREATE INDEX by_recency ON threads (archived, has_content, recency_at_ms, id);
CREATE INDEX by_section ON threads (section_id, section_rank, id) WHERE section_id IS NOT NULL;
CREATE INDEX by_project ON threads (project_id, recency_at_ms) WHERE project_id IS NOT NULL;
CREATE INDEX by_parent ON threads (parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX by_attachments ON threads (id) WHERE attachments <> '[]';
CREATE INDEX by_open ON threads (id) WHERE open;
CREATE TABLE seen ({", ".join(Seen._fields)}, sum INTEGER, PRIMARY KEY (thread_id));
"""


class IndexFile(DerivedFile):
    """The file of the index; one process at a time fills it, the others wait for that."""

    def __init__(self, path: Path) -> None:
        """Open the index, or make it.

        One of another version is thrown away, unless another process uses it; a damaged one is.

        Raises:
            IndexUnusable: the file cannot be made or opened.
            OSError: the folder cannot be made.
        """
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._making: WriterLock | None = None
        self._use = SharedLock(path.with_name("users.lock"))
        try:
            super().__init__(path, _SCHEMA, SCHEMA_VERSION, lock="schema.lock")
        except BaseException:
            self._use.release()
            raise

    @property
    def is_made_elsewhere(self) -> bool:
        """Whether another process fills it now."""
        return self.is_new and self._making is None

    def _take_part(self) -> None:
        if self.is_new and self._making is None:
            with suppress(LockBusy):
                self._making = WriterLock(self._path.with_name("rebuild.lock"))

    def _require_replaceable(self) -> None:
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
        with self.reading() as database:
            self.is_new = version_of(database) != SCHEMA_VERSION
            self._take_part()
            return not self.is_new

    def close(self) -> None:
        """Close the file."""
        super().close()
        self._stop_making()
        self._use.release()

    def mark_complete(self, generation: int | None = None) -> None:
        """Note that every thread is in the file; see DerivedFile.

        Raises:
            IndexReplaced: the file of this `generation` is gone.
        """
        super().mark_complete(generation)
        self._stop_making()

    def _check_rows(self, database: sqlite3.Connection) -> None:
        for *values, written in database.execute(f"SELECT {COLUMN_NAMES}, sum FROM threads"):
            if sum_of(values) != written:
                raise damaged("a row is not what was written")
