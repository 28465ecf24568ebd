"""Files of the environments of turns: of this machine, and of others through their exec servers.

Source: docs/apps.md, "Files"; docs/environments.md, "The exec protocol".
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

import anyio

from app_server.apps.files.files import (
    REPLACED,
    FileMetadata,
    FileRefused,
    PinnedFiles,
    SandboxState,
)
from app_server.apps.files.local import LOCAL, LocalFiles
from protocol.exec.files import FileProfile
from protocol.exec.processes import WorkPolicy
from protocol.turns.policy import (
    DangerFullAccessSandboxPolicy,
    ReadOnlySandboxPolicy,
    SandboxPolicy,
)

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
        """Set when nothing more comes."""


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
