"""Reads, writes, copies and removes what a path names. Everything here blocks.

Symbolic links in a path that is read or written are followed, as a user who names it expects.
Folders that are copied or removed are entered by descriptor and without following links, so that a
link that another process puts in the place of a folder leads nowhere else meanwhile.
Source: docs/tools.md, "Host methods"; openat(2).
"""

import base64
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from app_server.host.files.work import PathRefused, Stop, refuse_database
from app_server.runtime.files.open_databases import files_in_use

MAX_READ_BYTES = 48 * 1024 * 1024 - 1024
"""Of one file: in base64, with its envelope, it fits into an answer of 64 MiB."""

READ_CHUNK_BYTES = 768 * 1024
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
        while chunk := _read_full(descriptor, READ_CHUNK_BYTES):
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


MAX_DEPTH = 256
"""Folders inside of each other; each takes a descriptor, a copy two."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove(path: Path, *, recursive: bool, force: bool, stop: Stop) -> None:
    """Delete a file, a link, or a folder; `force` ignores a missing one.

    What was deleted before a failure, or before nobody waited any more, stays deleted.

    Raises:
        PathRefused: folders are deeper than MAX_DEPTH.
        OSError: something cannot be deleted, or a folder is not empty and not `recursive`.
    """
    try:
        found = path.lstat()
    except FileNotFoundError:
        if force:
            return
        raise
    if not stat.S_ISDIR(found.st_mode):
        path.unlink()
        return
    if recursive:
        with _entered(path) as folder:
            _empty(folder, stop, MAX_DEPTH)
    path.rmdir()


def copy(source: Path, destination: Path, *, recursive: bool, stop: Stop) -> None:
    """Copy a file with its mode, a link as a link, or a folder with its files, links and folders.

    A file replaces the content of one that exists; a folder or a link needs a place that is free.
    Pipes, sockets and devices in a folder are left out. What was copied before a failure, or before
    nobody waited any more, stays.

    Raises:
        PathRefused: it is a folder and not `recursive`, it would be copied into itself, it is none
            of the three, folders are deeper than MAX_DEPTH, or something is a database that the
            server has open.
        OSError: something cannot be read or written.
    """
    stop.check()
    found = source.lstat()
    in_use = files_in_use()
    if stat.S_ISLNK(found.st_mode):
        destination.symlink_to(source.readlink())
    elif stat.S_ISDIR(found.st_mode):
        if not recursive:
            raise PathRefused("fs/copy requires recursive: true when sourcePath is a directory")
        _refuse_inside(source, destination)
        make_directory(destination.parent, parents=True, stop=stop)
        destination.mkdir()
        with _entered(source) as old, _entered(destination) as new:
            _copy_folder(old, new, in_use, stop, MAX_DEPTH)
    elif stat.S_ISREG(found.st_mode):
        if _is_same(source, destination):
            return
        refuse_database(source, found, in_use)
        with suppress(FileNotFoundError):
            refuse_database(destination, destination.stat(), in_use)
        reading = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        _copy_file(reading, destination, None, stop)
    else:
        raise PathRefused("fs/copy only supports regular files, directories, and symlinks")


@contextmanager
def _entered(name: str | Path, folder: int | None = None) -> Iterator[int]:
    descriptor = os.open(name, _FOLDER, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _empty(folder: int, stop: Stop, depth: int) -> None:
    _check_depth(depth)
    with os.scandir(folder) as entries:
        found = list(entries)
    for entry in found:
        stop.check()
        if entry.is_dir(follow_symlinks=False):
            with _entered(entry.name, folder) as inner:
                _empty(inner, stop, depth - 1)
            os.rmdir(entry.name, dir_fd=folder)
        else:
            os.unlink(entry.name, dir_fd=folder)


def _copy_folder(
    old: int, new: int, in_use: frozenset[tuple[int, int]], stop: Stop, depth: int
) -> None:
    _check_depth(depth)
    with os.scandir(old) as entries:
        found = list(entries)
    for entry in found:
        stop.check()
        name = entry.name
        if entry.is_symlink():
            os.symlink(os.readlink(name, dir_fd=old), name, dir_fd=new)
        elif entry.is_dir(follow_symlinks=False):
            os.mkdir(name, dir_fd=new)
            with _entered(name, old) as inner_old, _entered(name, new) as inner_new:
                _copy_folder(inner_old, inner_new, in_use, stop, depth - 1)
        elif entry.is_file(follow_symlinks=False):
            refuse_database(name, entry.stat(follow_symlinks=False), in_use)
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            _copy_file(os.open(name, flags, dir_fd=old), name, new, stop)
    os.fchmod(new, stat.S_IMODE(os.fstat(old).st_mode))


def _copy_file(reading: int, name: str | Path, folder: int | None, stop: Stop) -> None:
    """Copy a file from its descriptor, and close that."""
    try:
        mode = os.fstat(reading).st_mode
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK | os.O_CLOEXEC
        # In a folder that was just made nothing may be there yet.
        flags |= os.O_EXCL if folder is not None else 0
        writing = os.open(name, flags, 0o600, dir_fd=folder)
        try:
            if stat.S_ISREG(os.fstat(writing).st_mode):
                os.fchmod(writing, stat.S_IMODE(mode))
            while chunk := os.read(reading, CHUNK_BYTES):
                stop.check()
                view = memoryview(chunk)
                while view:
                    view = view[os.write(writing, view) :]
        finally:
            os.close(writing)
    finally:
        os.close(reading)


def _refuse_inside(source: Path, destination: Path) -> None:
    inside = Path(os.path.realpath(destination))
    folder = Path(os.path.realpath(source))
    if inside == folder or folder in inside.parents:
        raise PathRefused("fs/copy cannot copy a directory to itself or one of its descendants")


def _is_same(source: Path, destination: Path) -> bool:
    try:
        return source.samefile(destination)
    except OSError:
        return False


def _check_depth(depth: int) -> None:
    if depth == 0:
        raise PathRefused(f"folders are more than {MAX_DEPTH} deep")
