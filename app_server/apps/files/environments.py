"""Files of the environments of turns: of this machine, and of others through their exec servers.

Source: docs/apps.md, "Files"; docs/environments.md, "The exec protocol".
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

from app_server.apps.files.files import (
    REPLACED,
    FileMetadata,
    FileRefused,
    PinnedFiles,
    SandboxState,
)
from app_server.apps.files.local import LOCAL, LocalFiles
from app_server.apps.files.machines import Machine, Machines
from protocol.exec_files import FileProfile
from protocol.exec_server import WorkPolicy
from protocol.policy import (
    DangerFullAccessSandboxPolicy,
    ReadOnlySandboxPolicy,
    SandboxPolicy,
)

CHUNK_BYTES = 256 * 1024


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
