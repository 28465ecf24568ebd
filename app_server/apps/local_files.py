"""Files of this machine, for turns whose sandbox lets everything be read.

Where a sandbox keeps anything from being read, a file would have to be opened by a process inside
of it; there is none yet, so nothing is read then.
Source: docs/apps.md, "Files".
"""

import os
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import BinaryIO

import anyio
import anyio.to_thread

from app_server.apps.files import FileMetadata, FileRefused, PinnedFiles, SandboxState
from protocol.model import Json

LOCAL = "local"
CHUNK_BYTES = 1024 * 1024

CONFINED = "the sandbox of this turn does not let every file be read"


class LocalFiles:
    """The FilesPort of this machine alone."""

    def __init__(self, instance_of: Callable[[str], str | None]) -> None:
        """`instance_of` says which instance an environment is now."""
        self._instance_of = instance_of

    @asynccontextmanager
    async def pin(self, state: SandboxState) -> AsyncIterator[PinnedFiles]:
        """Hold on to this machine; see FilesPort."""
        if state.environment_id != LOCAL:
            raise FileRefused(f"files of environment `{state.environment_id}` cannot be read")
        if state.environment_instance_id != self._instance_of(LOCAL):
            raise FileRefused("the environment is not the one of this turn any more")
        if not reads_everything(state.permission_profile):
            raise FileRefused(CONFINED)
        yield _Files()


def reads_everything(profile: Json) -> bool:
    """Whether a permission profile lets every file be read."""
    match profile:
        case {"type": "disabled" | "external"}:
            return True
        case {"type": "managed", "file_system": {"entries": list(entries)}}:
            return any(map(_is_root, entries)) and all(map(_allows, entries))
    return False


def _allows(entry: Json) -> bool:
    # What is not understood may be a prohibition.
    return isinstance(entry, dict) and entry.get("access") in ("read", "write")


def _is_root(entry: Json) -> bool:
    match entry:
        case {"path": {"type": "special", "value": {"kind": "root"}}, "access": "read" | "write"}:
            return True
    return False


class _Files:
    async def metadata(self, path: str) -> FileMetadata:
        try:
            found = await anyio.to_thread.run_sync(os.stat, path)
        except (OSError, ValueError) as exc:
            raise FileRefused(_reason(exc)) from None
        return FileMetadata(stat.S_ISREG(found.st_mode), found.st_size)

    async def read(self, path: str) -> AsyncIterator[bytes]:
        try:
            async with anyio.wrap_file(await anyio.to_thread.run_sync(_open, path)) as file:
                while chunk := await file.read(CHUNK_BYTES):
                    yield chunk
        except (OSError, ValueError) as exc:
            raise FileRefused(_reason(exc)) from None


def _open(path: str) -> BinaryIO:
    # Since it was looked at it may have become a pipe, which would be waited for without an end.
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise FileRefused("it is not a file")
    return os.fdopen(opened, "rb")


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or "it cannot be read"
