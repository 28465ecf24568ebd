"""AGENTS.md: what users, and projects that they did not distrust, tell every model.

The user's own file comes from the home folder. Then comes one file for each folder from the root of
the project down to the working directory. Those of a project on another machine are read through
its exec server, in the same order. What is about files here blocks: call it in a worker thread.
Source: docs/tools.md, "Instructions of projects"; docs/environments.md, "Threads in an
environment"; https://agents.md.
"""

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath, PurePosixPath
from typing import BinaryIO

import anyio

from app_server.config.values import Config
from app_server.host.environments import Environments, UnknownEnvironment
from app_server.host.exec.client.process import read_beginning
from app_server.host.folder_reads import READ_S
from app_server.permissions.sandbox.policy import is_there
from app_server.permissions.trust import project_trust
from app_server.runtime.files.opening import without_waiting
from app_server.runtime.files.reaching import NotReached, PathDenied, open_file
from protocol.exec.files import FileProfile
from protocol.exec.processes import WorkPolicy
from protocol.log.rollout import WorkingFolder
from protocol.turns.policy import ReadOnlySandboxPolicy

NAMES = ("AGENTS.override.md", "AGENTS.md")
"""In a folder the first of these that is a file counts, also when it is empty."""
DEFAULT_BYTES = 32 * 1024
"""Of all files of a project together; `project_doc_max_bytes` changes it."""
MAX_BYTES = 1024 * 1024
"""More than that is not read, whatever the settings say."""
MAX_HOME_BYTES = 256 * 1024
"""Of the user's own file, which does not count for the project."""
MAX_FOLDERS = 64
"""From the root of a project down to a working directory."""
MAX_FALLBACKS = 32
SEPARATOR = "\n\n"


@dataclass(frozen=True, slots=True)
class AgentsSettings:
    """Which files are read, and how much of them."""

    max_bytes: int = DEFAULT_BYTES
    fallbacks: Sequence[str] = ()
    """Names that count where a folder has none of NAMES."""
    root_markers: Sequence[str] = (".git",)
    """Names that mark a project's root; without any, the working directory alone is looked at."""


@dataclass(slots=True)
class Instructions:
    """Text of the instruction files, with their paths and warnings."""

    text: str | None = None
    sources: list[str] = field(default_factory=list)
    """Absolute paths, in the order of the text."""
    warnings: list[str] = field(default_factory=list)
    """Warnings of files that could not be read, or were cut."""


def read_agents_settings(config: Config) -> AgentsSettings:
    """Read the settings for files of instructions.

    Raises:
        ConfigError: a value does not fit.
    """
    view = config.view()
    limit = view.integer("project_doc_max_bytes")
    markers = view.strings("project_root_markers")
    given = view.strings("project_doc_fallback_filenames") or ()
    names = [name for name in given if name and os.sep not in name]
    return AgentsSettings(
        max_bytes=DEFAULT_BYTES if limit is None else min(limit, MAX_BYTES),
        fallbacks=names[:MAX_FALLBACKS],
        root_markers=(".git",) if markers is None else [m for m in markers if os.sep not in m],
    )


def read_instructions(
    home: Path | None, cwd: str | None, config: Config, settings: AgentsSettings
) -> Instructions:
    """Read the instructions for a thread in a folder; `cwd` None is a thread without a folder.

    A project that the user does not trust is not read. A file that cannot be read is named in a
    warning, and left out.

    Raises:
        ConfigError: what the configuration says of trust does not fit.
    """
    found = Instructions()
    texts: list[str] = []
    if home is not None:
        texts += _of_home(home, found)
    if cwd is not None:
        folders = project_folders(Path(cwd), settings.root_markers)
        if project_trust(config, cwd) != "untrusted":
            texts.extend(_of_project(folders, settings, found))
    found.text = SEPARATOR.join(texts) or None
    return found


def left_out(path: PurePath, settings: AgentsSettings) -> str:
    """Say that a file and those after it are above the bound of a project."""
    return (
        f"{path} and what follows it was left out: the project's instructions have "
        f"{settings.max_bytes} bytes already (project_doc_max_bytes)"
    )


def was_cut(path: PurePath, kept: int, size: int) -> str:
    """Say how many bytes of a file are read."""
    return f"{path} was cut: only its first {kept} of {size} bytes are read"


def project_folders(cwd: Path, root_markers: Sequence[str]) -> list[Path]:
    """Give the folders from the root of a project down to a working directory."""
    folders = [cwd, *cwd.parents][:MAX_FOLDERS]
    for depth, folder in enumerate(folders):
        if any(is_there(folder / marker) for marker in root_markers):
            return folders[depth::-1]
    return [cwd]


def _of_home(home: Path, found: Instructions) -> list[str]:
    for path in (home / name for name in NAMES):
        # A link is the user's own doing here.
        content = _read(path, MAX_HOME_BYTES, found)
        if content is not None:
            return texts_of(path, content, found)
    return []


def _of_project(
    folders: Sequence[Path], settings: AgentsSettings, found: Instructions
) -> Iterator[str]:
    left = settings.max_bytes
    if left == 0:
        return
    root = os.path.realpath(folders[0])
    for folder in folders:
        try:
            path = _chosen(folder, settings.fallbacks)
        except OSError as exc:
            # No reason to refuse the thread that works there, or once did.
            found.warnings.append(f"{folder} cannot be searched for AGENTS.md: {exc.strerror}")
            continue
        if path is None:
            continue
        if left == 0:
            found.warnings.append(left_out(path, settings))
            return
        content = _read_inside(path, root, left, found)
        if content is None:
            continue
        left -= len(content)
        yield from texts_of(path, content, found)


def texts_of(path: PurePath, content: bytes, found: Instructions) -> list[str]:
    """Decode a file, and note it as a source; nothing for a blank one."""
    text = content.decode(errors="replace").strip()
    if not text:
        return []
    found.sources.append(str(path))
    return [text]


def _chosen(folder: Path, fallbacks: Sequence[str]) -> Path | None:
    return next((path for name in (*NAMES, *fallbacks) if (path := folder / name).is_file()), None)


def _read_inside(path: Path, root: str, limit_bytes: int, found: Instructions) -> bytes | None:
    """Read a file of a project, part by part of its path, so that no link leads out of it."""
    inside = root.rstrip(os.sep) + os.sep
    try:
        with open_file(str(path), lambda real: real.startswith(inside)) as file:
            return _beginning(file, path, limit_bytes, found)
    except PathDenied:
        found.warnings.append(f"{path} was left out: it is a link to outside of the project")
    except NotReached as exc:
        found.warnings.append(f"{path} cannot be read: {exc}")
    except OSError as exc:
        found.warnings.append(f"{path} cannot be read: {exc.strerror}")
    return None


def _read(path: Path, limit_bytes: int, found: Instructions) -> bytes | None:
    """Read the beginning of a regular file; None if there is none, or it cannot be read."""
    try:
        with open(path, "rb", opener=without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            return _beginning(file, path, limit_bytes, found)
    except FileNotFoundError:
        return None
    except OSError as exc:
        found.warnings.append(f"{path} cannot be read: {exc.strerror}")
        return None


def _beginning(file: BinaryIO, path: Path, limit_bytes: int, found: Instructions) -> bytes:
    content = file.read(limit_bytes)
    size = os.fstat(file.fileno()).st_size
    if size > len(content):
        found.warnings.append(was_cut(path, len(content), size))
    return content


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
