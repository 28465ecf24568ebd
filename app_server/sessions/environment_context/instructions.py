"""The files of instructions that one loaded thread has read, and for which folders."""

from collections.abc import Sequence

import anyio

from app_server.config.values import Config, ConfigError
from app_server.host.folder_reads import READ_S
from app_server.sessions.environment_context.agents_elsewhere import read_elsewhere
from app_server.sessions.environment_context.agents_files import (
    SEPARATOR,
    Instructions,
    read_agents_settings,
    read_instructions,
)
from app_server.sessions.environment_context.machine import timezone_name
from app_server.turns.server_context import ServerContext
from protocol.log.rollout import LOCAL, Settings, WorkingFolder


class ThreadInstructions:
    """Instructions from the disk for a thread's model: `AGENTS.md` and the time zone."""

    def __init__(
        self,
        config: Config,
        server: ServerContext,
    ) -> None:
        """Read nothing yet but the settings.

        Raises:
            ConfigError: a setting does not fit.
        """
        self._config = config
        self._home = server.home
        self._reads = server.folder_reads
        self._environments = server.environments
        self._settings = read_agents_settings(config)
        self._found = Instructions()
        self._read_for: Sequence[tuple[str, str, str | None]] | None = None
        self.timezone: str | None = None
        """As IANA names it; None while that is not known."""

    @property
    def text(self) -> str | None:
        """The text of all files that were read last."""
        return self._found.text

    @property
    def sources(self) -> list[str]:
        """The files of this text, as absolute paths."""
        return list(self._found.sources)

    def take_warnings(self) -> list[str]:
        """Return what is wrong with files, once."""
        taken, self._found.warnings = self._found.warnings, []
        return taken

    def are_of(self, settings: Settings) -> bool:
        """Whether the last read was of the folders of these settings."""
        return self._folders(settings) == self._read_for

    async def read(self, settings: Settings) -> None:
        """Read the files; what does not answer in 2 s is left out, with a warning."""
        self._read_for = self._folders(settings)
        folders = settings.working_folders
        here = next((one.cwd for one in folders if one.environment_id == LOCAL), None)

        def read_here() -> tuple[Instructions, Instructions, str | None]:
            of_user = read_instructions(self._home, None, self._config, self._settings)
            of_project = read_instructions(None, here, self._config, self._settings)
            return of_user, of_project, timezone_name()

        try:
            read = await self._reads.read(read_here)
        except ConfigError as exc:
            self._found = Instructions(warnings=[str(exc)])
            return
        if read is None:
            what = f"{settings.cwd} did not answer in {READ_S:g} s: its AGENTS.md was not read"
            self._found = Instructions(warnings=[what])
            return
        of_user, of_project, self.timezone = read
        found = {LOCAL: of_project, **await self._read_elsewhere(folders)}
        projects = [
            (one, found[one.environment_id]) for one in folders if one.environment_id in found
        ]
        self._found = _together(of_user, projects, self._settings.max_bytes)

    async def _read_elsewhere(self, folders: Sequence[WorkingFolder]) -> dict[str, Instructions]:
        """Read the files of other machines, by environment.

        If one is away, all are looked for again later.
        """
        found: dict[str, Instructions] = {}

        async def read(folder: WorkingFolder) -> None:
            there, is_reached = await read_elsewhere(self._environments, folder, self._settings)
            found[folder.environment_id] = there
            if not is_reached:
                self._read_for = None

        async with anyio.create_task_group() as tasks:
            for folder in folders:
                if folder.environment_id != LOCAL:
                    tasks.start_soon(read, folder)
        return found

    def _folders(self, settings: Settings) -> Sequence[tuple[str, str, str | None]]:
        # Another machine may have taken the name of an environment.
        return [
            (one.environment_id, one.cwd, self._environments.instance_of(one.environment_id))
            for one in settings.working_folders
        ]


def _together(
    of_user: Instructions, projects: Sequence[tuple[WorkingFolder, Instructions]], max_bytes: int
) -> Instructions:
    """Put instructions behind one another; projects after the first have what it has left."""
    texts = [] if of_user.text is None else [of_user.text]
    sources, warnings = [*of_user.sources], [*of_user.warnings]
    left: int | None = None
    for folder, found in projects:
        sources += found.sources
        warnings += found.warnings
        if found.text is None:
            continue
        content = found.text.encode()
        if left is not None and len(content) > left:
            warnings.append(_shortened(folder, left, len(content), max_bytes))
            content = content[:left]
        left = max(0, (max_bytes if left is None else left) - len(content))
        if text := content.decode(errors="ignore"):
            texts.append(text if len(projects) == 1 else f"{_heading(folder)}\n\n{text}")
    return Instructions(SEPARATOR.join(texts) or None, sources, warnings)


def _heading(folder: WorkingFolder) -> str:
    return f"Of the environment `{folder.environment_id}`, in {folder.cwd}:"


def _shortened(folder: WorkingFolder, kept: int, size: int, max_bytes: int) -> str:
    what = f"AGENTS.md in {folder.cwd} (`{folder.environment_id}`)"
    first = (
        f"the first {kept} of {size} bytes of {what} are read" if kept else f"{what} is left out"
    )
    return f"{first}: all projects have {max_bytes} bytes together (project_doc_max_bytes)"
