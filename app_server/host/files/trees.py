"""Removes and copies, folders with all that is in them. Everything here blocks.

Folders are entered by descriptor and without following links, so that a link that another process
puts in the place of a folder leads nowhere else meanwhile.
Source: docs/tools.md, "Host methods"; openat(2).
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from app_server.host.files.work import PathRefused, Stop, refuse_database
from app_server.host.files.writing import make_directory
from app_server.runtime.files.open_databases import files_in_use

MAX_DEPTH = 256
"""Folders inside of each other; each takes a descriptor, a copy two."""

CHUNK_BYTES = 1024 * 1024
"""Copied between two looks at whether anybody still waits."""

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
