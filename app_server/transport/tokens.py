"""Tokens of listeners: those accepted, the file of one written for clients here, and the check.

A token is fixed, stands in a file that changes, or is written for clients of this machine. Programs
send one as `Authorization: Bearer TOKEN`. A page in a browser cannot set headers of a WebSocket; it
offers the subprotocols `app-server` and `bearer.TOKEN`, of which the server chooses the first.
Does not know: sockets, settings, users.
Source: docs/listeners.md, "Tokens"; RFC 6750, section 2.1; RFC 6455, section 1.9.
"""

import errno
import fcntl
import hashlib
import hmac
import logging
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeAlias

import anyio
import anyio.to_thread

logger = logging.getLogger(__name__)


class CapabilityToken:
    """One token, of which the server keeps only the SHA-256."""

    def __init__(self, sha256: bytes) -> None:
        self._sha256 = sha256

    def accepts(self, token: str) -> bool:
        """Whether this is the token; takes as long for every other one."""
        return hmac.compare_digest(digest_of(token), self._sha256)


def digest_of(token: str) -> bytes:
    """Return the SHA-256 of a token: 32 bytes.

    A header that is not ASCII has surrogates, which no token has.
    """
    return hashlib.sha256(token.encode(errors="surrogatepass")).digest()


Version: TypeAlias = tuple[int, int, int, int, int]
"""Identity of a version of a file: device, inode, size, times."""


class TokenCheck(Protocol):
    """Check of a client's token."""

    def accepts(self, token: str) -> bool:
        """Whether a token lets its bearer in; never raises."""
        ...


class RotatedCheck:
    """The check that a file makes, which somebody may replace."""

    def __init__(self, path: Path, check: TokenCheck, make: Callable[[Path], TokenCheck]) -> None:
        """Begin with a check that was made of the file at the start.

        `make` reads the file again, in a worker thread; it raises ValueError for a content that
        makes no sense, and OSError.
        """
        self._path = path
        self._check = check
        self._make = make
        self._looking = anyio.Lock()
        self._version: Version | None = None
        self._failure: str | None = None

    async def current(self) -> TokenCheck:
        """Look at the file, read it if it is another one, and return what holds now.

        One look at a time: on a file system that hangs, one worker thread waits, and not one for
        each request.
        """
        async with self._looking:
            await anyio.to_thread.run_sync(self._look)
        return self._check

    def _look(self) -> None:
        try:
            version = version_of(self._path)
            if version == self._version:
                return
            self._check = self._make(self._path)
        except OSError as exc:
            # It is tried again with each request, as nothing of the file may have to change.
            self._version = None
            self._fail(exc.strerror or type(exc).__name__)
        except ValueError as exc:
            self._version = version
            self._fail(str(exc))
        else:
            self._version = version
            self._failure = None

    def _fail(self, why: str) -> None:
        if why != self._failure:
            logger.warning("%s: %s; what was read from it last still holds", self._path, why)
        self._failure = why


def version_of(path: Path) -> Version:
    """Return what changes whenever another file takes the place of this one.

    Raises:
        OSError: there is no such file, or it is none.
    """
    there = path.stat()
    if not stat.S_ISREG(there.st_mode):
        # To open a pipe would wait for somebody who writes into it.
        raise OSError(None, "it is no file any more")
    return (there.st_dev, there.st_ino, there.st_size, there.st_mtime_ns, there.st_ctime_ns)


TOKEN_BYTES = 32
"""Of randomness."""

TOKEN = re.compile(rb"([A-Za-z0-9_-]{43}\n?)?")
"""Form of a token file of a dead server; a file with other content stays."""

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


BEARER_SUBPROTOCOL = "bearer."


class Headers(Protocol):
    """The headers of a request."""

    def get_all(self, key: str) -> list[str]:
        """Return the values of all headers of a name, in whatever letter case."""
        ...


class TokenGate:
    """Lets in who shows one token that one of the checks accepts."""

    def __init__(
        self, checks: Sequence["TokenCheck"], changing: Sequence["RotatedCheck"] = ()
    ) -> None:
        self._checks = checks
        self._changing = changing

    async def lets_in(self, headers: Headers) -> bool:
        """Whether a request may become a connection."""
        token = presented_token(headers)
        if token is None:
            return False
        checks = [*self._checks, *[await each.current() for each in self._changing]]
        return any(check.accepts(token) for check in checks)


def presented_token(headers: Headers) -> str | None:
    """Return the one token of a request; None if there is none, or more than one.

    Of two, a proxy may have looked at the other one.
    """
    shown = [_of_header(value) for value in headers.get_all("Authorization")]
    offered = ",".join(headers.get_all("Sec-WebSocket-Protocol"))
    shown += [
        name.removeprefix(BEARER_SUBPROTOCOL)
        for name in map(str.strip, offered.split(","))
        if name.startswith(BEARER_SUBPROTOCOL)
    ]
    return shown[0] if len(shown) == 1 and shown[0] else None


def _of_header(value: str) -> str | None:
    scheme, _, token = value.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None
