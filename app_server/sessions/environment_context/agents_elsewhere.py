"""AGENTS.md of a project on another machine, read through its exec server.

They are looked for as on this machine (agents_files.py), from the root of the project down to the
folder of the thread.
Source: docs/tools.md, "Instructions of projects"; docs/environments.md, "Threads in an
environment".
"""

import errno
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

import anyio

from app_server.host.environments import Environments, UnknownEnvironment
from app_server.host.exec.client.process import read_beginning
from app_server.host.folder_reads import READ_S
from app_server.sessions.environment_context.agents_files import (
    MAX_FOLDERS,
    NAMES,
    SEPARATOR,
    AgentsSettings,
    Instructions,
    left_out,
    texts_of,
    was_cut,
)
from protocol.exec.files import FileProfile
from protocol.exec.processes import WorkPolicy
from protocol.log.rollout import WorkingFolder
from protocol.turns.policy import ReadOnlySandboxPolicy

GIT = ".git"
POLICY = WorkPolicy(sandbox_policy=ReadOnlySandboxPolicy(), roots=[])


async def read_elsewhere(
    machines: Environments, folder: WorkingFolder, settings: AgentsSettings
) -> tuple[Instructions, bool]:
    """Read the instructions of a project there, and say whether the machine was reached.

    A file that cannot be read is named in a warning, and left out. All of it takes 2 s at most.
    """
    name = folder.environment_id
    project = _Project(machines, name, settings)
    try:
        with anyio.fail_after(READ_S):
            await project.read(PurePosixPath(folder.cwd))
    except (TimeoutError, ConnectionError, UnknownEnvironment):
        text = f"environment `{name}` is out of reach: AGENTS.md of {folder.cwd} was not read"
        return Instructions(warnings=[text]), False
    return project.found, True


@dataclass(frozen=True, slots=True)
class _Project:
    machines: Environments
    place: str
    settings: AgentsSettings
    found: Instructions = field(default_factory=Instructions)

    async def read(self, cwd: PurePosixPath) -> None:
        left = self.settings.max_bytes
        if left == 0:
            return
        texts = await self._texts(await self._folders(cwd), left)
        self.found.text = SEPARATOR.join(texts) or None

    async def _texts(self, folders: Sequence[PurePosixPath], left: int) -> list[str]:
        texts: list[str] = []
        for folder in folders:
            for name in (*NAMES, *self.settings.fallbacks):
                path = folder / name
                if left == 0 and await self._opens(path) is None:
                    self.found.warnings.append(left_out(path, self.settings))
                    return texts
                content = await self._content(path, folders[0], left)
                if content is None:
                    continue
                left -= len(content)
                texts += texts_of(path, content, self.found)
                break
        return texts

    async def _folders(self, cwd: PurePosixPath) -> list[PurePosixPath]:
        """Give the folders from the root of the project down."""
        folders = [cwd, *cwd.parents][:MAX_FOLDERS]
        for depth, folder in enumerate(folders):
            for marker in self.settings.root_markers:
                if await self._is_there(folder / marker):
                    return folders[depth::-1]
        return [cwd]

    async def _is_there(self, marker: PurePosixPath) -> bool:
        if marker.name == GIT and await self._is_there(marker / "HEAD"):
            return True
        failure = await self._opens(marker)
        # A folder of Git without HEAD is what a sandbox laid there.
        is_folder = failure is not None and failure.errno == errno.EINVAL
        return failure is None or (is_folder and marker.name != GIT)

    async def _opens(self, path: PurePosixPath) -> OSError | None:
        """Say why a file cannot be opened; None if it can."""
        try:
            async with self.machines.open_file(self.place, str(path), POLICY):
                return None
        except ConnectionError:
            raise
        except OSError as exc:
            return exc

    async def _content(
        self, path: PurePosixPath, root: PurePosixPath, limit_bytes: int
    ) -> bytes | None:
        """Read a file; None if there is none. What it leaves out is in a warning."""
        entries = [{"path": {"type": "path", "path": str(root)}, "access": "read"}]
        profile = {"type": "managed", "file_system": {"type": "restricted", "entries": entries}}
        inside = FileProfile(profile=profile, cwd=str(root))
        opening = self.machines.open_file(self.place, str(path), POLICY, inside)
        try:
            content, size = await read_beginning(opening, limit_bytes)
        except ConnectionError:
            raise
        except OSError as exc:
            if exc.errno not in (errno.ENOENT, errno.EINVAL):
                self.found.warnings.append(f"{path} cannot be read: {exc.strerror or exc}")
                return b""
            return None
        if size > len(content):
            self.found.warnings.append(was_cut(path, len(content), size))
        return content
