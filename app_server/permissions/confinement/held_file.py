"""Held places in a file of a home: what a killed server knew of them, the next one knows too.

Source: docs/tools.md, "Places are held".
"""

import json
import logging
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from app_server.permissions.confinement.place import HeldPlace
from app_server.runtime.files.disk import sync_folder
from app_server.runtime.files.opening import open_regular
from app_server.runtime.files.secret import StoreFailed, lock_held, write_private

logger = logging.getLogger(__name__)

FILE = "places.jsonl"
"""In a server's home."""

LOCK = "index/places.lock"

LOCK_S = 5.0
"""For other servers of the home, which write for milliseconds."""

MAX_BYTES = 32 << 20
"""Bytes read of a file; what it has beyond is not known."""

FULL_BYTES = 8 << 20
"""Of a file that is written anew, as it says much twice."""


Entry: TypeAlias = tuple[str, HeldPlace] | frozenset[str]
"""A path and what it led to, or folders that somebody confined can write to."""


class PlacesFile:
    """The file of a home, which all servers of the home append to. Everything here blocks."""

    def __init__(self, home: Path) -> None:
        self._path = home / FILE
        self._lock = home / LOCK
        self._seen = (0, 0)
        """The inode of the file and its size, when it was looked at last."""
        self._offset = 0
        """Up to where it is known, in bytes."""

    def news(self) -> list[Entry]:
        """Return what was appended since the last call; damaged lines are left out."""
        try:
            found = os.stat(self._path)  # noqa: PTH116 - once for each place, for speed
        except OSError:
            return []
        if self._seen == (found.st_ino, found.st_size):
            return []
        return self._read()

    def add(self, entries: Sequence[Entry], everything: Iterable[Entry]) -> list[Entry]:
        """Append, or write `everything` where the file is full; gives what others had appended.

        Raises:
            StoreFailed: the disk refused, or the file is no regular one.
        """
        with lock_held(self._lock, LOCK_S):
            news = self.news()
            if self._offset > FULL_BYTES:
                self._write([*everything, *news, *entries])
            else:
                self._append(b"".join(map(_line, entries)))
        return news

    def write(self, everything: Iterable[Entry]) -> list[Entry]:
        """Write the file anew; gives what others had appended, which is in it too.

        Raises:
            StoreFailed: the disk refused.
        """
        with lock_held(self._lock, LOCK_S):
            news = self.news()
            self._write([*everything, *news])
        return news

    def _read(self) -> list[Entry]:
        try:
            file = open_regular(self._path)
        except OSError as exc:
            logger.warning("the held places of %s cannot be read: %s", self._path, exc.strerror)
            return []
        if file is None:
            return []
        with file:
            found = os.fstat(file.fileno())
            if found.st_ino != self._seen[0] or found.st_size < self._offset:
                self._offset = 0
            self._seen = found.st_ino, found.st_size
            file.seek(self._offset)
            text = file.read(MAX_BYTES)
        end = text.rfind(b"\n") + 1
        self._offset += end
        entries = [_entry(line) for line in text[:end].splitlines() if line]
        if None in entries:
            logger.warning("%d lines of %s are damaged", entries.count(None), self._path)
        return [entry for entry in entries if entry is not None]

    def _append(self, lines: bytes) -> None:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with os.fdopen(os.open(self._path, flags, 0o600), "ab") as file:
                number = file.fileno()
                found = os.fstat(number)
                is_whole = not found.st_size or os.pread(number, 1, found.st_size - 1) == b"\n"
                file.write(lines if is_whole else b"\n" + lines)
                file.flush()
                os.fsync(number)
                self._offset = os.fstat(number).st_size
                self._seen = found.st_ino, self._offset
            sync_folder(self._path.parent)
        except OSError as exc:
            raise StoreFailed(f"{self._path}: {exc.strerror}") from exc

    def _write(self, entries: Iterable[Entry]) -> None:
        lines = list(map(_line, entries))
        size = sum(map(len, lines))
        first = 0
        while size > FULL_BYTES:
            size -= len(lines[first])
            first += 1
        write_private(self._path, b"".join(lines[first:]))
        self._offset = size
        try:
            self._seen = self._path.stat().st_ino, size
        except OSError as exc:
            raise StoreFailed(f"{self._path}: {exc.strerror}") from exc


def _line(entry: Entry) -> bytes:
    document: dict[str, Any]
    if isinstance(entry, frozenset):
        document = {"writable": sorted(entry)}
    else:
        path, held = entry
        document = {
            "path": path,
            "real": held.real,
            "identity": held.identity,
            "through": held.through,
        }
    return json.dumps(document).encode() + b"\n"


def _entry(line: bytes) -> Entry | None:
    """Read a line; None for one that is damaged."""
    try:
        found = json.loads(line)
        if "writable" in found:
            return frozenset(_texts(found["writable"]))
        identity = found["identity"]
        if identity is not None:
            device, inode = identity
            identity = int(device), int(inode)
        path, real = _texts([found["path"], found["real"]])
        return path, HeldPlace(real, identity, _texts(found["through"]), is_stored=True)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _texts(found: Sequence[Any]) -> tuple[str, ...]:
    if not all(isinstance(text, str) and text.startswith("/") for text in found):
        raise ValueError
    return tuple(found)
