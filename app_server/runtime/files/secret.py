"""Secrets on this machine: files for their owner alone, locks between processes, the keyring.

Knows no format and no purpose. What is not `async` here blocks: call it in a worker.
"""

import errno
import importlib
import importlib.util
import os
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from app_server.runtime.files.disk import atomic_write, lock_within, sync_folder, try_lock
from app_server.runtime.loader import load_from_worker

ASYNC_LOCK_POLL_S = 0.05


class StoreFailed(Exception):
    """A place for secrets cannot be used; the text names the place and no content."""


def read_private(path: Path, limit_bytes: int) -> bytes | None:
    """Return the content of a file, at most one byte more than the limit; None without a file.

    Raises:
        StoreFailed: it is there and cannot be read.
    """
    try:
        with path.open("rb") as file:
            return file.read(limit_bytes + 1)
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise StoreFailed(f"{path}: {exc.strerror}") from exc


def write_private(path: Path, content: bytes) -> None:
    """Replace a file as a whole, mode 0600; when this returns it is on disk.

    Raises:
        StoreFailed: it cannot be written; what was there is there still.
    """
    try:
        with atomic_write(path, path.with_name(f"{path.name}.{secrets.token_hex(8)}")) as file:
            file.write(content)
    except OSError as exc:
        raise StoreFailed(f"{path}: {exc.strerror}") from exc


def delete_private(path: Path) -> bool:
    """Delete a file; False when there was none.

    Raises:
        StoreFailed: it is there still.
    """
    try:
        path.unlink()
        sync_folder(path.parent)
    except FileNotFoundError:
        return False
    except OSError as exc:
        raise StoreFailed(f"{path}: {exc.strerror}") from exc
    return True


@contextmanager
def lock_held(path: Path, wait_s: float) -> Iterator[None]:
    """Hold a lock against other threads and processes; for work that takes milliseconds.

    Raises:
        StoreFailed: it cannot be made, or others have held it for `wait_s`.
    """
    with lock_file(path) as number:
        if not lock_within(number, wait_s):
            raise StoreFailed(f"{path}: another process has held it for {wait_s} s")
        yield


@asynccontextmanager
async def lock_awaited(path: Path) -> AsyncIterator[None]:
    """Hold a lock against other tasks and processes; waits without limit.

    Raises:
        StoreFailed: it cannot be made.
    """
    number = await anyio.to_thread.run_sync(_open_lock, path)
    try:
        await wait_for_lock(number)
        yield
    finally:
        os.close(number)


@contextmanager
def lock_file(path: Path) -> Iterator[int]:
    """Yield the descriptor of a lock file; a lock taken on it is held until the context ends.

    Raises:
        StoreFailed: it cannot be made.
    """
    number = _open_lock(path)
    try:
        yield number
    finally:
        os.close(number)


async def wait_for_lock(number: int) -> None:
    """Lock the file of a lock against other tasks and processes; waits without limit."""
    while True:
        if try_lock(number):
            return
        await anyio.sleep(ASYNC_LOCK_POLL_S)


def _open_lock(path: Path) -> int:
    # The file stays: removing it would let two that opened it at different times hold it at once.
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # What a link points to is nobody's lock, and must not be made or kept open.
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as exc:
        if exc.errno == errno.ELOOP:
            raise StoreFailed(f"{path}: a lock must not be a symbolic link") from exc
        raise StoreFailed(f"{path}: {exc.strerror}") from exc


def load_keyring() -> Any:
    """Return the module `keyring`, None where it is not installed."""
    if importlib.util.find_spec("keyring") is None:
        return None
    return load_from_worker(_keyring)


def _keyring() -> Any:
    keyring = importlib.import_module("keyring")
    # Choosing one imports them all.
    keyring.get_keyring()
    return keyring


@contextmanager
def keyring_failures(*, quiet: bool) -> Iterator[None]:
    """Translate failures of the keyring to StoreFailed; a quiet one counts as no keyring."""
    try:
        yield
    except StoreFailed:
        raise
    except Exception as exc:  # noqa: BLE001
        # Each of its backends raises what it likes.
        if not quiet:
            raise StoreFailed(f"the keyring cannot be used: {type(exc).__name__}") from None
