"""Files of SQLite that can be made again from the logs: damage is seen, and the file begun anew.

Everything here blocks.
Source: docs/storage.md, "A damaged index".
"""

import errno
import logging
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from pydantic_core import to_json

from app_server.runtime.files.sqlite import (
    check_whole,
    connect_to_read,
    errno_of,
    identity,
    is_damage,
    open_rebuildable,
    remove_database,
    version_of,
)
from app_server.threads.files.locks import short_lock

logger = logging.getLogger(__name__)

_NO_FILE = (-1, -1)

AGAIN_S = 60.0
"""A running server begins one file anew at most so often."""

CHECKED_FIRST_BYTES = 4 * 1024 * 1024
"""Files of up to this size are checked before they answer; larger ones while they answer."""

Args = ParamSpec("Args")
Result = TypeVar("Result")


class IndexUnusable(OSError):
    """The index cannot be opened, read or written; the logs are as they were."""


class IndexReplaced(IndexUnusable):
    """The index has been begun anew meanwhile: threads are missing until it is made."""


class IndexDamaged(IndexReplaced):
    """The content of the index is damaged."""


@contextmanager
def index_failures(path: Path) -> Iterator[None]:
    """Translate failures of SQLite into those of a disk, naming the file.

    Raises:
        IndexDamaged: what is in the file is wrong.
        IndexUnusable: it cannot be used now.
    """
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as exc:
        kind = IndexDamaged if is_damage(exc, path) else IndexUnusable
        raise kind(errno_of(exc), str(exc), str(path)) from exc


def once_more(method: Callable[Args, Result]) -> Callable[Args, Result]:
    """Have a call repeated on the new file when the one that it met was damaged."""

    @wraps(method)
    def call(*args: Args.args, **kwargs: Args.kwargs) -> Result:
        try:
            return method(*args, **kwargs)
        except IndexReplaced:
            return method(*args, **kwargs)

    return call


def sum_of(values: Sequence[Any]) -> int:
    """Return what stands beside a row, so that a row that damage has changed is known by it."""
    return zlib.crc32(to_json(values, bytes_mode="base64"))


class DerivedFile:
    """One SQLite file in WAL mode; safe to call from any worker thread.

    Several processes may have it open. One that finds it damaged removes it and begins another
    one; the others see with their next call that the file is another one, and take that.
    """

    def __init__(
        self, path: Path, schema: str, version: int, *, lock: str, autocommit: bool = False
    ) -> None:
        """Open the file, or begin it; then it `is_new`, until `mark_complete`.

        `lock` is the name of the file that is locked while the database is opened.

        Raises:
            IndexUnusable: the file cannot be made or opened.
            OSError: the folder cannot be made.
        """
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = path
        self._schema = schema
        self._version = version
        self._opening = path.with_name(lock)
        self._autocommit = autocommit
        self._lock = threading.Lock()
        self._begun_at = float("-inf")
        self._is_closed = False
        self.generation = 0
        """Another number for each file: what was read before may be in none of the later ones."""
        self._open()

    def _open(self) -> None:
        # Nobody replaces the file while somebody else looks what it is.
        with index_failures(self._path), short_lock(self._opening):
            self._database = open_rebuildable(
                self._path,
                self._schema,
                self._version,
                before_replacing=self._require_replaceable,
                autocommit=self._autocommit,
            )
            self._file = identity(self._path)
            self.generation += 1
            self.is_new = version_of(self._database) != self._version
            """Whether there may be threads that it does not know."""
            self._take_part()

    def _require_replaceable(self) -> None:
        """Raise an OSError where a file of another version must stay."""

    def _take_part(self) -> None:
        """Take up the work on a file that is new, if it is this process's."""

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._is_closed = True
            self._database.close()

    @contextmanager
    def _held(self) -> Iterator[sqlite3.Connection]:
        """Hold the connection to the file that is there now."""
        with self._lock:
            self._require_open()
            if identity(self._path) != self._file:
                self._reopen()
            try:
                with index_failures(self._path):
                    yield self._database
            except IndexDamaged as exc:
                self._begin_anew(exc)
                raise

    def _require_open(self) -> None:
        """Raise IndexUnusable once it is closed: work that goes on then begins no other file."""
        if self._is_closed:
            raise IndexUnusable(errno.EBADF, "it is closed", str(self._path))

    def _begin_anew(self, damage: IndexDamaged) -> None:
        self._require_open()
        now_s = time.monotonic()
        if now_s - self._begun_at < AGAIN_S:
            # Whatever spoils it would spoil the next one too.
            raise IndexUnusable(damage.errno, damage.strerror, str(self._path)) from damage
        self._begun_at = now_s
        logger.warning(
            "%s is damaged, and is made again from the logs: %s", self._path, damage.strerror
        )
        with short_lock(self._opening):
            if identity(self._path) == self._file:
                self._database.close()
                remove_database(self._path)
        self._reopen()

    def _reopen(self) -> None:
        self._database.close()
        # Until it is open, each call tries again.
        self._file = _NO_FILE
        self._open()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Hold the file for writing, all or nothing.

        Raises:
            IndexDamaged, IndexUnusable
        """
        with self._held() as database, database:
            if self._autocommit:
                database.execute("BEGIN IMMEDIATE")
            yield database

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Hold the connection for reading.

        Raises:
            IndexDamaged, IndexUnusable
        """
        with self._held() as database:
            yield database

    def mark_complete(self, generation: int | None = None) -> None:
        """Note that every thread is in the file, which had this `generation` when it was filled.

        Raises:
            IndexReplaced: that file is gone.
        """
        with self.transaction() as database:
            if generation is not None:
                self.require_generation(generation)
            database.execute(f"PRAGMA user_version = {self._version}")
        self.is_new = False

    def require_generation(self, generation: int) -> None:
        """Refuse to go on with another file than the one of this `generation`.

        Raises:
            IndexReplaced: that one is gone.
        """
        if self.generation != generation:
            raise IndexReplaced(errno.EIO, "it was begun anew in the meantime", str(self._path))

    def is_small(self) -> bool:
        """Whether checking it takes a moment only."""
        log = self._path.with_name(f"{self._path.name}-wal")
        sizes = [path.stat().st_size for path in (self._path, log) if path.exists()]
        return sum(sizes) <= CHECKED_FIRST_BYTES

    def check_pages(self) -> None:
        """Do as `check`, and leave out whether rows are what was written."""
        self._check(lambda _: None)

    def check(self) -> None:
        """Read the whole file, and begin it anew if something in it is wrong.

        Others may use it meanwhile.

        Raises:
            IndexDamaged: it was.
            IndexUnusable
        """
        self._check(self._check_rows)

    def _check(self, check_rows: Callable[[sqlite3.Connection], None]) -> None:
        generation = self.generation
        try:
            with index_failures(self._path), closing(connect_to_read(self._path)) as database:
                check_whole(database)
                check_rows(database)
        except IndexDamaged as exc:
            with self._lock:
                if self.generation == generation:
                    self._begin_anew(exc)
            raise

    def _check_rows(self, database: sqlite3.Connection) -> None:
        """Raise a damage of SQLite where a row is not what was written."""
