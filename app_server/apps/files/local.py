"""Files of this machine, as the profile of a turn lets them be read.

Where everything may be read the system opens paths. Where something may not, they are walked part
by part, and the place that this leads to decides.
Source: docs/apps.md, "Files".
"""

import os
import stat
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import BinaryIO

import anyio.to_thread
from anyio import wrap_file

from app_server.apps.files.files import (
    REPLACED,
    FileMetadata,
    FileRefused,
    PinnedFiles,
    SandboxState,
)
from app_server.permissions.readable import Parts, parts_of, readable, reads_everything
from app_server.runtime.files import reaching
from app_server.runtime.files.opening import open_regular

LOCAL = "local"
CHUNK_BYTES = 1024 * 1024

CONFINED = "the sandbox of this turn does not let this file be read"

Allows = Callable[[Parts], bool]
"""Whether a real path may be read."""


class LocalFiles:
    """The files of this machine."""

    def __init__(self, instance_of: Callable[[str], str | None]) -> None:
        """`instance_of` says which instance an environment is now."""
        self._instance_of = instance_of

    @asynccontextmanager
    async def pin(self, state: SandboxState) -> AsyncIterator[PinnedFiles]:
        """Hold on to this machine; see FilesPort."""
        if state.environment_instance_id != self._instance_of(LOCAL):
            raise FileRefused(REPLACED)
        if reads_everything(state.permission_profile):
            yield _Files(None)
            return
        rules = await anyio.to_thread.run_sync(
            readable, state.permission_profile, state.sandbox_cwd
        )
        if rules.is_empty:
            raise FileRefused(CONFINED)
        yield _Files(rules.allows)


class _Files:
    def __init__(self, allows: Allows | None) -> None:
        """Read what is allowed; None: everything."""
        self._allows = allows

    async def metadata(self, path: str) -> FileMetadata:
        try:
            found = await anyio.to_thread.run_sync(look_at, path, self._allows)
        except (OSError, ValueError) as exc:
            raise FileRefused(_reason(exc)) from None
        return FileMetadata(stat.S_ISREG(found.st_mode), found.st_size)

    async def read(self, path: str) -> AsyncGenerator[bytes, None]:
        try:
            opened = await anyio.to_thread.run_sync(open_file, path, self._allows)
            async with wrap_file(opened) as file:
                while chunk := await file.read(CHUNK_BYTES):
                    yield chunk
        except (OSError, ValueError) as exc:
            raise FileRefused(_reason(exc)) from None


def _open(path: str) -> BinaryIO:
    # Since it was looked at it may have become a pipe, which would be waited for without an end.
    file = open_regular(path)
    if file is None:
        raise FileRefused("it is not a file")
    return file


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or "it cannot be read"


def look_at(path: str, allows: Allows | None) -> os.stat_result:
    """Look at what an absolute path leads to; blocks.

    Raises:
        FileRefused: it may not be read, or is not there.
        OSError, ValueError: it is not there, where everything may be read.
    """
    if allows is None:
        return os.stat(path)  # noqa: PTH116
    with _in_words():
        return reaching.look_at(path, lambda real: allows(parts_of(real)))


def open_file(path: str, allows: Allows | None) -> BinaryIO:
    """Open a regular file for reading; blocks.

    Raises:
        FileRefused: it may not be read, is not there, or is something else.
        OSError, ValueError: it cannot be opened, where everything may be read.
    """
    if allows is None:
        return _open(path)
    with _in_words():
        return reaching.open_file(path, lambda real: allows(parts_of(real)))


@contextmanager
def _in_words() -> Iterator[None]:
    try:
        yield
    except reaching.PathDenied:
        raise FileRefused(CONFINED) from None
    except reaching.NotReached as exc:
        raise FileRefused(str(exc)) from None
