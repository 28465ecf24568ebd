"""Reads of a path's metadata, bytes and entries. Everything here blocks.

Symbolic links are followed, as a user who names a path expects it.
Source: docs/tools.md, "Host methods".
"""

import base64
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from app_server.host.files.work import PathRefused, Stop, refuse_database
from app_server.runtime.files.open_databases import files_in_use

MAX_READ_BYTES = 48 * 1024 * 1024 - 1024
"""Of one file: in base64, with its envelope, it fits into an answer of 64 MiB."""

CHUNK_BYTES = 768 * 1024
"""Between two looks at whether anybody still waits; a multiple of 3: base64 of pieces joins."""

MAX_ENTRIES = 200_000
"""Of one folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """The metadata of a path; kinds are of a link's target."""

    is_directory: bool
    is_file: bool
    is_symlink: bool
    created_at_ms: int
    """Unix milliseconds; 0 where the system does not say."""
    modified_at_ms: int


@dataclass(frozen=True, slots=True)
class Entry:
    """Entry of a folder; its kind is that of a link's target, or neither without one."""

    name: str
    is_directory: bool
    is_file: bool


def read_metadata(path: Path, stop: Stop) -> Metadata:
    """Read the metadata of a path.

    Raises:
        OSError: nothing is, or it may not be seen; also for a link to nothing.
    """
    stop.check()
    found = path.stat()
    born = getattr(found, "st_birthtime", 0.0)
    return Metadata(
        is_directory=stat.S_ISDIR(found.st_mode),
        is_file=stat.S_ISREG(found.st_mode),
        is_symlink=path.is_symlink(),
        created_at_ms=int(born * 1000),
        modified_at_ms=found.st_mtime_ns // 1_000_000,
    )


def read_base64(path: Path, stop: Stop) -> list[str]:
    """Return the bytes of a file in base64, in pieces that belong together.

    Raises:
        PathRefused: it is no regular file, has more than MAX_READ_BYTES, or is a database that the
            server has open.
        OSError: it cannot be read.
    """
    refuse_database(path, path.stat(), files_in_use())
    # Opening a pipe that nobody writes to would wait for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise PathRefused(f"path `{path}` is not a file")
        if found.st_size > MAX_READ_BYTES:
            raise _too_large()
        pieces, size = list[str](), 0
        while chunk := _read_full(descriptor, CHUNK_BYTES):
            stop.check()
            size += len(chunk)
            # Files of /proc do not say how long they are, and others grow.
            if size > MAX_READ_BYTES:
                raise _too_large()
            pieces.append(base64.b64encode(chunk).decode("ascii"))
        return pieces
    finally:
        os.close(descriptor)


def read_entries(path: Path, stop: Stop) -> Sequence[Entry]:
    """List a folder in the order of names.

    Raises:
        PathRefused: it has more than MAX_ENTRIES.
        OSError: it is no folder, or cannot be read.
    """
    found: list[Entry] = []
    with os.scandir(path) as entries:
        for entry in entries:
            stop.check()
            if len(found) == MAX_ENTRIES:
                raise PathRefused(f"directory is too large to list: limit is {MAX_ENTRIES} entries")
            name = os.fsencode(entry.name).decode(errors="replace")
            found.append(Entry(name, *_kinds(entry)))
    return sorted(found, key=lambda entry: entry.name)


def _kinds(entry: os.DirEntry[str]) -> tuple[bool, bool]:
    try:
        return entry.is_dir(), entry.is_file()
    except OSError:
        return False, False


def _read_full(descriptor: int, size: int) -> bytes:
    """Read `size` bytes; fewer only at the end of the file."""
    data = os.read(descriptor, size)
    while data and len(data) < size and (more := os.read(descriptor, size - len(data))):
        data += more
    return data


def _too_large() -> PathRefused:
    return PathRefused(f"file is too large to read: limit is {MAX_READ_BYTES} bytes")
