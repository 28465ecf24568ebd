"""Writes whole files, and makes folders. Everything here blocks.

Source: docs/tools.md, "Host methods".
"""

import os
import secrets
import stat
from pathlib import Path

from app_server.host.files.work import PathRefused, Stop, refuse_database
from app_server.runtime.files.open_databases import files_in_use

CHUNK_BYTES = 1024 * 1024
"""Between two looks at whether anybody still waits."""


def write_file(path: Path, data: bytes, stop: Stop) -> None:
    """Make `data` all that a file holds; a link is followed, the mode of a file stays.

    A file that exists is replaced by a rename, so that a full disk or a crash leaves it as it was.
    Where that cannot be done (other links to the file, another owner, a folder that cannot be
    written) it is overwritten.

    Raises:
        PathRefused: what is there is no regular file, or a database that the server has open.
        OSError: it cannot be written.
    """
    target = Path(os.path.realpath(path))
    try:
        found = target.stat()
    except FileNotFoundError:
        _overwrite(target, data, stop)
        return
    if stat.S_ISDIR(found.st_mode):
        # The system's own refusal has the words that clients know.
        _overwrite(target, data, stop)
    if not stat.S_ISREG(found.st_mode):
        raise PathRefused(f"path `{path}` is not a file")
    refuse_database(path, found, files_in_use())
    keeps_its_inode = (
        found.st_nlink > 1 or found.st_uid != os.geteuid() or not os.access(target, os.W_OK)
    )
    if keeps_its_inode or not _replace(target, found, data, stop):
        _overwrite(target, data, stop)


def make_directory(path: Path, *, parents: bool, stop: Stop) -> None:
    """Make a folder; with `parents` also missing ones above it, and it may exist.

    Raises:
        OSError: it cannot be made, or, without `parents`, it exists.
    """
    stop.check()
    if not parents:
        path.mkdir()
        return
    # Not `mkdir(parents=True)`, which calls itself for each folder and gives up below 1,000.
    missing: list[Path] = []
    while not _is_made(path):
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        stop.check()
        folder.mkdir(exist_ok=True)


def _is_made(path: Path) -> bool:
    """Make a folder; False where the one above it is missing."""
    try:
        path.mkdir()
    except FileNotFoundError:
        if path == path.parent:
            raise
        return False
    except OSError:
        if not path.is_dir():
            raise
    return True


def _overwrite(path: Path, data: bytes, stop: Stop) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK | os.O_CLOEXEC
    _fill(os.open(path, flags, 0o666), data, stop)


def _replace(path: Path, found: os.stat_result, data: bytes, stop: Stop) -> bool:
    """Put a new file in the place of another one; False if none can be made beside it."""
    beside = path.with_name(f".{secrets.token_hex(8)}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        descriptor = os.open(beside, flags, 0o600)
    except OSError:
        return False
    try:
        _take_mode(descriptor, found)
        _fill(descriptor, data, stop)
        beside.rename(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    return True


def _take_mode(descriptor: int, found: os.stat_result) -> None:
    try:
        if found.st_gid != os.fstat(descriptor).st_gid:
            os.fchown(descriptor, -1, found.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(found.st_mode))
    except OSError:
        os.close(descriptor)
        raise


def _fill(descriptor: int, data: bytes, stop: Stop) -> None:
    view = memoryview(data)
    try:
        while view:
            stop.check()
            view = view[os.write(descriptor, view[:CHUNK_BYTES]) :]
    finally:
        os.close(descriptor)
