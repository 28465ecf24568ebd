"""Pages of the index that were read a moment ago, for as long as nobody has changed the index.

A client that shows a list asks for the same page again and again. Looking whether the index has
changed takes microseconds and no disk, so it is done on the event loop.
Source: https://sqlite.org/pragma.html#pragma_data_version; docs/threads.md, "Lists".
"""

import sqlite3
from collections import deque
from pathlib import Path
from typing import TypeAlias

from app_server.runtime.files.sqlite import identity
from app_server.threads.index.query import ThreadPage, ThreadQuery

MAX_PAGES = 16
"""Each has at most as many rows as a list may ask for."""


Version: TypeAlias = tuple[int, int]
"""How often the file was opened, and what SQLite counts."""


class ChangeCounter:
    """Tells whether the index was changed, by this process or another one.

    It has a connection of its own, which never writes and never waits: SQLite counts what all other
    connections commit. For one thread alone.
    """

    def __init__(self, path: Path) -> None:
        """Take the path of an index that is there; it is opened with the first `read`."""
        self._path = path
        self._database: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._opened = 0

    def read(self) -> Version | None:
        """Return what is another value after every change; None if that is unknown."""
        try:
            # One that was damaged has been replaced, and changes no more.
            file = identity(self._path)
            if file != self._file:
                self.close()
            if self._database is None:
                self._file = file
                self._opened += 1
                # Reading only, so that it can never make a file.
                self._database = sqlite3.connect(
                    f"{self._path.absolute().as_uri()}?mode=ro", uri=True, timeout=0
                )
            (number,) = self._database.execute("PRAGMA data_version").fetchone()
        except (sqlite3.Error, UnicodeDecodeError):
            self.close()
            return None
        return self._opened, int(number)

    def close(self) -> None:
        """Close the connection; the next `read` opens another one."""
        if self._database is not None:
            self._database.close()
            self._database = None


class RecentPages:
    """The last pages that were read, at most MAX_PAGES; for the event loop."""

    def __init__(self, path: Path) -> None:
        """Take the path of the index."""
        self._counter = ChangeCounter(path)
        self._read_at: Version | None = None
        self._pages: deque[tuple[ThreadQuery, ThreadPage]] = deque(maxlen=MAX_PAGES)

    def version(self) -> Version | None:
        """Look what `keep` needs about a page that is read from now on."""
        return self._counter.read()

    def find(self, query: ThreadQuery) -> ThreadPage | None:
        """Return the page if it was read since the index last changed."""
        if not self._pages:
            return None
        if (version := self.version()) is None or version != self._read_at:
            self._pages.clear()
            return None
        return next((page for asked, page in self._pages if asked == query), None)

    def keep(self, query: ThreadQuery, page: ThreadPage, version: Version | None) -> None:
        """Remember a page; `version` is what was there before it was read."""
        if version is None:
            return
        if version != self._read_at:
            self._pages.clear()
            self._read_at = version
        self._pages.append((query, page))

    def close(self) -> None:
        """Forget everything, and close the connection."""
        self._pages.clear()
        self._counter.close()
