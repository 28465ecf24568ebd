"""Files of the environments of turns: of this machine, and of others through their exec servers.

Source: docs/apps.md, "Files"; docs/environments.md, "The exec protocol".
"""

import asyncio
import os
import stat
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import BinaryIO, Protocol

import anyio
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
from protocol.exec.files import FileProfile
from protocol.exec.processes import WorkPolicy
from protocol.turns.policy import (
    DangerFullAccessSandboxPolicy,
    ReadOnlySandboxPolicy,
    SandboxPolicy,
)

LOCAL = "local"
LOCAL_CHUNK_BYTES = 1024 * 1024

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
        """Read the allowed paths; None allows all."""
        self._allows = allows

    async def metadata(self, path: str) -> FileMetadata:
        try:
            found = await anyio.to_thread.run_sync(look_at, path, self._allows)
        except (OSError, ValueError) as exc:
            raise FileRefused(_local_reason(exc)) from None
        return FileMetadata(stat.S_ISREG(found.st_mode), found.st_size)

    async def read(self, path: str) -> AsyncGenerator[bytes, None]:
        try:
            opened = await anyio.to_thread.run_sync(open_file, path, self._allows)
            async with wrap_file(opened) as file:
                while chunk := await file.read(LOCAL_CHUNK_BYTES):
                    yield chunk
        except (OSError, ValueError) as exc:
            raise FileRefused(_local_reason(exc)) from None


def _open(path: str) -> BinaryIO:
    # Since it was looked at it may have become a pipe, which would be waited for without an end.
    file = open_regular(path)
    if file is None:
        raise FileRefused("it is not a file")
    return file


def _local_reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or "it cannot be read"


def look_at(path: str, allows: Allows | None) -> os.stat_result:
    """Inspect the target of an absolute path; blocks.

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


CHUNK_BYTES = 256 * 1024


class OpenFile(Protocol):
    """A file of another machine that is being read."""

    @property
    def stdout(self) -> asyncio.StreamReader:
        """Its bytes."""

    @property
    def size(self) -> int | None:
        """Of the file as it was opened, in bytes."""

    @property
    def returncode(self) -> int | None:
        """0 once all of it was read."""

    @property
    def ended(self) -> anyio.Event:
        """Event of the end of the stream."""


class Machine(Protocol):
    """One instance of an environment that is another machine."""

    def open_file(
        self, path: str, policy: WorkPolicy, profile: FileProfile | None = None
    ) -> AbstractAsyncContextManager[OpenFile]:
        """Read a file while the context lasts; entering raises OSError where it cannot be."""


class Machines(Protocol):
    """All environments; app_server/host/environments.py has them."""

    def instance_of(self, environment_id: str) -> str | None:
        """Return which instance an environment is now; None for an unknown one."""

    def instance(self, environment_id: str, instance_id: str) -> Machine | None:
        """Return another machine; None if it is another instance now."""


class EnvironmentFiles:
    """The FilesPort of all environments."""

    def __init__(self, machines: Machines) -> None:
        self._machines = machines
        self._local = LocalFiles(machines.instance_of)

    @asynccontextmanager
    async def pin(self, state: SandboxState) -> AsyncIterator[PinnedFiles]:
        """Hold on to one instance; see FilesPort."""
        if state.environment_id == LOCAL:
            async with self._local.pin(state) as files:
                yield files
            return
        machine = self._machines.instance(state.environment_id, state.environment_instance_id or "")
        if machine is None:
            if self._machines.instance_of(state.environment_id) is None:
                raise FileRefused(f"environment `{state.environment_id}` is not known")
            raise FileRefused(REPLACED)
        yield _RemoteFiles(machine, state)


class _RemoteFiles:
    def __init__(self, machine: Machine, state: SandboxState) -> None:
        self._machine = machine
        # What nobody may read there, the exec server knows by itself.
        policy: SandboxPolicy = ReadOnlySandboxPolicy()
        if state.permission_profile.get("type") in ("disabled", "external"):
            policy = DangerFullAccessSandboxPolicy()
        self._policy = WorkPolicy(roots=[], sandbox_policy=policy)
        self._profile = FileProfile(profile=state.permission_profile, cwd=state.sandbox_cwd)

    async def metadata(self, path: str) -> FileMetadata:
        try:
            async with self._machine.open_file(path, self._policy, self._profile) as file:
                if file.size is None:
                    raise FileRefused("its size is not known")
                return FileMetadata(is_file=True, size=file.size)
        except OSError as exc:
            raise FileRefused(_reason(exc)) from None

    async def read(self, path: str) -> AsyncGenerator[bytes, None]:
        try:
            async with self._machine.open_file(path, self._policy, self._profile) as file:
                while chunk := await file.stdout.read(CHUNK_BYTES):
                    yield chunk
                await file.ended.wait()
                if file.returncode != 0:
                    raise FileRefused("it was not read to its end")
        except OSError as exc:
            raise FileRefused(_reason(exc)) from None


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or "it cannot be read"
