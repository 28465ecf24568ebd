"""Open files that other users or programs may have made: no pipes, bounded reads.

Nothing waits for the other end of a pipe. Reading what strangers wrote is bounded, and never leaves
the folder it belongs to. Everything here blocks: call it in a worker thread.
Source: fifo(7); open(2), O_NONBLOCK; docs/plugins.md, "Bounds".
"""

import os
import stat
from pathlib import Path, PurePosixPath
from typing import BinaryIO


def without_waiting(path: str, flags: int) -> int:
    """Open a path at once, whatever it is: an `opener` of `open`."""
    return os.open(path, flags | os.O_NONBLOCK)


def open_regular(path: str | os.PathLike[str]) -> BinaryIO | None:
    """Open a regular file for reading; None where something else is.

    Raises:
        OSError: nothing is there, or it cannot be read.
    """
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(opened).st_mode):
        return os.fdopen(opened, "rb")
    os.close(opened)
    return None


MAX_FILE_BYTES = 256 * 1024
"""Of a manifest, a marketplace, a skill, or another file with declarations."""


class BrokenFiles(Exception):
    """Files on disk that cannot be used; the text says why, and clients may read it."""


def inside(root: Path, relative: PurePosixPath | str) -> Path:
    """Resolve a path below a folder, links included.

    Raises:
        BrokenFiles: it leads out of the folder, or nowhere.
    """
    try:
        resolved, folder = (root / relative).resolve(), root.resolve()
    except (OSError, RuntimeError, ValueError) as exc:
        # A circle of links, or characters that no path has.
        raise BrokenFiles(f"`{relative}` is no usable path") from exc
    if not resolved.is_relative_to(folder):
        raise BrokenFiles(f"`{relative}` leads out of its folder")
    return resolved


def read_text(root: Path, relative: PurePosixPath | str) -> str | None:
    """Read a file below a folder; None if there is none.

    Raises:
        BrokenFiles: it leads out, is too large, is no file, is not UTF-8 or cannot be read.
    """
    path = inside(root, relative)
    name = PurePosixPath(relative).name
    try:
        if not path.exists():
            return None
        if not path.is_file():
            raise BrokenFiles(f"{name} is not a file")
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as exc:
        raise BrokenFiles(f"failed to read {name}: {exc.strerror}") from exc
    if len(content) > MAX_FILE_BYTES:
        raise BrokenFiles(f"{name} is larger than {MAX_FILE_BYTES} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError as exc:
        raise BrokenFiles(f"{name} is not UTF-8") from exc
