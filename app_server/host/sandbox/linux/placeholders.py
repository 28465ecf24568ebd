"""Empty folders where something is protected that is not there: without one it could be made.

A mount needs something to lie on, so the folder is on the disk for as long as any command of any
server runs below it. Each of them holds a shared lock on the folder, and the last one removes it:
its supervisor before it says that the command has ended, which it does for a dead server as well.
What they were is written down in the server's home meanwhile. Where nobody was left to remove them,
the next start, load of a thread or command does.
Source: docs/tools.md, "Sandbox".
"""

import fcntl
import itertools
import json
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from app_server.host.commands.spawner import remove_placeholder
from app_server.permissions.sandbox.policy import PLACEHOLDER_MODE, is_placeholder
from app_server.permissions.sandbox.roots import Identity
from app_server.runtime.files.reaching import FOLDER

TRIES = 100
"""To get hold of a folder that others remove and make meanwhile."""

LOCKED_S = 0.01
"""Seconds between two tries while it is locked: its removal locks it for a moment."""

MAX_RECORDS = 64
"""Records that are read in one go."""

MAX_RECORD_BYTES = 1 << 20
"""Of one of these files; what it has beyond is not read."""

_READ = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_PATHS = TypeAdapter(list[str])
_IDENTITIES = TypeAdapter(list[Identity])


class Placeholder:
    """A claim on an empty folder, which was made for it or for another claim."""

    def __init__(self, folder: int, name: str) -> None:
        """Make the folder in one that a descriptor is of, if it is not there; blocks.

        Raises:
            OSError: it cannot be made, or somebody else keeps it locked.
        """
        self.name = name
        self.fd = self._claim(folder)
        """Holds the lock; open until `release`."""
        self._is_released = False

    @property
    def identity(self) -> Identity:
        """The device and inode numbers of the folder."""
        found = os.fstat(self.fd)
        return found.st_dev, found.st_ino

    def _claim(self, folder: int) -> int:
        reason = f"{self.name} cannot be held"
        for _ in range(TRIES):
            with suppress(FileExistsError):
                os.mkdir(self.name, PLACEHOLDER_MODE, dir_fd=folder)
            try:
                fd = os.open(self.name, _READ, dir_fd=folder)
            except FileNotFoundError:
                continue
            try:
                # Never waits: a command can have locked the folder for as long as it likes.
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                reason = "another program has locked it"
                time.sleep(LOCKED_S)
                continue
            # It may have been removed before it was locked.
            if _is_there(fd, self.name, folder):
                return fd
            os.close(fd)
        raise OSError(reason)

    def release(self) -> None:
        """Give the claim up, and remove the folder if it is empty and without another claim."""
        if not self._is_released:
            self._is_released = True
            remove_placeholder(self.fd, self.name)
            os.close(self.fd)


def _is_there(fd: int, name: str, folder: int) -> bool:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(fd), found)


class PlaceholderRecords:
    """Files in a server's home which say where placeholders are; each has a lock while it holds.

    Everything here blocks.
    """

    def __init__(self, folder: Path, max_record_bytes: int = MAX_RECORD_BYTES) -> None:
        """`folder` need not be there."""
        self._max_record_bytes = max_record_bytes
        self._folder = folder
        self._numbers = itertools.count()
        self._token = secrets.token_hex(8)

    @contextmanager
    def written(self, paths: Sequence[str]) -> "Iterator[PlaceholderRecord]":
        """Write down which placeholders are about to be made, until the context ends.

        Where nothing can be written they are made all the same.
        """
        path = self._folder / f"{self._token}.{next(self._numbers)}"
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError:
            yield PlaceholderRecord(None)
            return
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            record = PlaceholderRecord(fd)
            record.add(paths)
            yield record
        finally:
            with suppress(OSError):
                path.unlink()
            os.close(fd)

    def remove_left(self) -> None:
        """Remove unchanged placeholders that other servers of this home have left."""
        with suppress(OSError), os.scandir(self._folder) as entries:
            for entry in itertools.islice(entries, MAX_RECORDS):
                if not entry.name.startswith(self._token):
                    with suppress(OSError):
                        _remove_left_of(Path(entry.path), self._max_record_bytes)


class PlaceholderRecord:
    """One of these files, open for writing."""

    def __init__(self, fd: int | None) -> None:
        """None: there is no room for it."""
        self._fd = fd

    def add(self, values: Sequence[object]) -> None:
        """Append a line: first the paths, then the folder made at each."""
        if self._fd is not None:
            with suppress(OSError):
                os.write(self._fd, json.dumps(values).encode() + b"\n")


def _remove_left_of(record: Path, max_bytes: int) -> None:
    fd = os.open(record, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        # Whoever wrote it lives as long as this fails.
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        lines = file.read(max_bytes).split(b"\n")
        with suppress(ValidationError):
            paths = _PATHS.validate_json(lines[0])
            made = _IDENTITIES.validate_json(lines[1]) if any(lines[1:]) else []
            for path, identity in itertools.zip_longest(paths, made):
                if path is not None:
                    _remove_left_at(path, identity)
        record.unlink()


def _remove_left_at(path: str, identity: Identity | None) -> None:
    """Remove a placeholder that no process holds.

    Without an identity, as its server died right then, its mode has to do.

    Raises:
        BlockingIOError: somebody holds it.
    """
    folder_path, name = os.path.split(path)
    try:
        folder = os.open(folder_path, FOLDER)
    except OSError:
        return
    try:
        fd = os.open(name, _READ, dir_fd=folder)
    except OSError:
        return
    finally:
        os.close(folder)
    try:
        found = os.fstat(fd)
        is_ours = is_placeholder(found) and found.st_uid == os.geteuid()
        if is_ours and identity in (None, (found.st_dev, found.st_ino)):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_placeholder(fd, name)
    finally:
        os.close(fd)
