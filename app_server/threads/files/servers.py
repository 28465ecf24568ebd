"""Which servers run with a home: a file for each, which its server keeps locked.

The system frees a lock when its holder dies. So a file whose lock is free is of a server that was
killed; the next server that starts removes it. Everything here blocks.
Source: docs/operations.md, "Which servers run".
"""

import contextlib
import errno
import fcntl
import json
import logging
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from app_server.runtime.files.disk import try_lock
from app_server.threads.servers import FoundServer, ServerEntry

logger = logging.getLogger(__name__)

FOLDER = "servers"

MAX_FILE_BYTES = 64 * 1024

MAX_FILES = 1024
"""Of servers that run or were killed; what is beyond is not looked at."""

MAX_TRIES = 10
"""Of writing the file of a server, where others that start take its draft for one of the dead."""


ENTRIES = re.compile(r".+\.json")
DRAFTS = re.compile(r"[0-9a-f]{16}\.draft")
"""Names of files; a draft becomes an entry."""


@contextmanager
def announced(home: Path, entry: ServerEntry) -> Iterator[None]:
    """Keep the file of a server while it runs, and remove those of servers that were killed.

    A file that cannot be written is logged and nothing more: the server does not need it.
    """
    try:
        kept = _Announcement(home / FOLDER, entry)
    except OSError as exc:
        logger.warning("this server will not be shown by `app-server status`: %s", exc)
        yield
        return
    try:
        yield
    finally:
        kept.remove()


class _Announcement:
    def __init__(self, folder: Path, entry: ServerEntry) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        _remove_stale(folder)
        name = secrets.token_hex(8)
        self._path = folder / f"{name}.json"
        # Whoever looks sees a whole file that is locked, or none.
        draft = folder / f"{name}.draft"
        self._file = _make_locked(draft)
        try:
            os.write(self._file, json.dumps(asdict(entry)).encode())
            draft.rename(self._path)
        except BaseException:
            os.close(self._file)
            with contextlib.suppress(OSError):
                draft.unlink()
            raise

    def remove(self) -> None:
        try:
            self._path.unlink(missing_ok=True)
        except OSError as exc:
            logger.warning("%s stays: %s", self._path, exc.strerror)
        finally:
            os.close(self._file)


def _make_locked(draft: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    for _ in range(MAX_TRIES):
        file = os.open(draft, flags, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file).st_nlink > 0:
                return file
        except BaseException:
            os.close(file)
            raise
        # Between the two calls it looked like one that a dead server left, and was removed.
        os.close(file)
    raise OSError(errno.EBUSY, "other servers remove this file all the time", str(draft))


def servers_of(home: Path) -> list[FoundServer]:
    """Return the servers of a home, running ones first, then by their start.

    Raises:
        OSError: the folder is there and cannot be read.
    """
    found = [
        server for path in _files(home / FOLDER, ENTRIES) if (server := _read(path)) is not None
    ]
    return sorted(found, key=lambda one: (not one.is_running, one.entry.started_at, one.entry.pid))


def _files(folder: Path, names_of: re.Pattern[str]) -> list[Path]:
    try:
        names = [entry.name for entry in os.scandir(folder) if names_of.fullmatch(entry.name)]
    except FileNotFoundError:
        return []
    return [folder / name for name in sorted(names)[:MAX_FILES]]


def _read(path: Path) -> FoundServer | None:
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        # It ended meanwhile, or another user's server wrote it.
        return None
    try:
        is_running = not try_lock(file, fcntl.LOCK_SH)
        entry = _parse(os.read(file, MAX_FILE_BYTES))
    except OSError:
        # No server writes into a pipe, or makes a folder.
        return None
    finally:
        os.close(file)
    return None if entry is None else FoundServer(entry, is_running)


def _parse(content: bytes) -> ServerEntry | None:
    """Read an entry; None for what no server wrote."""
    try:
        members: Any = json.loads(content)
        entry = ServerEntry(
            pid=members["pid"],
            version=members["version"],
            started_at=members["started_at"],
            addresses=members["addresses"],
            token_file=members["token_file"],
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    numbers = isinstance(entry.pid, int) and isinstance(entry.started_at, int)
    lists = isinstance(entry.addresses, list) and all(
        isinstance(address, str) for address in entry.addresses
    )
    words = isinstance(entry.version, str) and isinstance(entry.token_file, str | None)
    return entry if numbers and lists and words else None


def _remove_stale(folder: Path) -> None:
    for path in (*_files(folder, ENTRIES), *_files(folder, DRAFTS)):
        with contextlib.suppress(OSError):
            file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                if try_lock(file):
                    path.unlink()
            finally:
                os.close(file)


class FileServers:
    """The servers that keep a file in a home."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def announced(self, entry: ServerEntry) -> AbstractContextManager[None]:
        """Keep the file of a server while it runs; one that cannot be written is logged."""
        return announced(self._home, entry)

    def all(self) -> Sequence[FoundServer]:
        """Return the servers, running ones first, then by their start.

        Raises:
            OSError: the folder is there and cannot be read.
        """
        return servers_of(self._home)
