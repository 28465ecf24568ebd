"""The file with the token for clients of this user: made at the start, removed at the stop.

While a server runs it holds a lock on the file, so a second one cannot take it over, and one that a
dead server left behind is used again. What blocks here takes milliseconds.
Source: docs/listeners.md, "The token file"; flock(2).
"""

import errno
import fcntl
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TOKEN_BYTES = 32
"""Of randomness."""

TOKEN = re.compile(rb"([A-Za-z0-9_-]{43}\n?)?")
"""What a file of a dead server holds; whatever else is there is somebody's, and stays."""

MAX_TRIES = 10
"""Of opening a path where another server removes its file meanwhile."""


class TokenFileUnusable(OSError):
    """The token file cannot be made; the text says why."""

    def __str__(self) -> str:
        """Say it without a number."""
        return f"the token file cannot be made: {self.filename}: {self.strerror}"


@contextmanager
def token_file(path: Path) -> Iterator[str]:
    """Write a new token to `path` for its owner alone, and give it; leaving removes the file.

    Raises:
        TokenFileUnusable: it cannot be opened, another server has it, or it is no token file.
        OSError: it cannot be written.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        number = _open_locked(path)
    except OSError as exc:
        raise TokenFileUnusable(exc.errno, exc.strerror, str(path)) from exc
    try:
        token = secrets.token_urlsafe(TOKEN_BYTES)
        os.fchmod(number, stat.S_IRUSR | stat.S_IWUSR)
        # As long as what may be there: see TOKEN.
        os.pwrite(number, f"{token}\n".encode(), 0)
        try:
            yield token
        finally:
            # Whoever put another file there meant it to stay.
            if _is_at(path, number):
                path.unlink()
    finally:
        os.close(number)


def _open_locked(path: Path) -> int:
    for _ in range(MAX_TRIES):
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        number = os.open(path, flags, stat.S_IRUSR | stat.S_IWUSR)
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(path, number):
                _require_token_file(number, path)
                return number
        except BlockingIOError:
            os.close(number)
            raise OSError(
                errno.EBUSY, "another server keeps its token in this file", str(path)
            ) from None
        except BaseException:
            os.close(number)
            raise
        # A server that stopped removed the file between the two calls.
        os.close(number)
    raise OSError(errno.EBUSY, "other servers make and remove this file all the time", str(path))


def _is_at(path: Path, number: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(number))
    except FileNotFoundError:
        return False


def _require_token_file(number: int, path: Path) -> None:
    there = os.fstat(number)
    if not stat.S_ISREG(there.st_mode) or there.st_uid != os.geteuid():
        raise OSError(errno.EPERM, "the token file must be a file of this user", str(path))
    if not TOKEN.fullmatch(os.pread(number, 64, 0)):
        raise OSError(errno.EEXIST, "exists and is no token file", str(path))
