"""The files of instructions that one loaded thread has read, and for which folder."""

from functools import partial
from pathlib import Path

from app_server.config.values import Config, ConfigError
from app_server.host.environments import Environments
from app_server.host.folder_reads import READ_S, FolderReads
from app_server.sessions.surroundings.agents_elsewhere import read_elsewhere
from app_server.sessions.surroundings.agents_files import (
    SEPARATOR,
    Instructions,
    read_agents_settings,
    read_instructions,
)
from app_server.sessions.surroundings.machine import timezone_name
from protocol.rollout import LOCAL, Settings, WorkingFolder


class ThreadInstructions:
    """What the disk says to the model: `AGENTS.md` and the time zone."""

    def __init__(
        self,
        config: Config,
        home: Path | None,
        reads: FolderReads,
        environments: Environments | None = None,
    ) -> None:
        """`home` None has no instructions of the user.

        Raises:
            ConfigError: a setting does not fit.
        """
        self._config = config
        self._home = home
        self._reads = reads
        self._environments = environments
        self._settings = read_agents_settings(config)
        self._found = Instructions()
        self._read_for: tuple[object, ...] = ()
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
        """Whether what was read last is of the folder that these settings have."""
        return self._folder(settings) == self._read_for

    async def read(self, settings: Settings) -> None:
        """Read the files; what does not answer in 2 s is left out, with a warning."""
        self._read_for = self._folder(settings)
        first = next(iter(settings.working_folders), None)
        is_here = first is not None and first.environment_id == LOCAL
        folder = settings.cwd if is_here else None
        work = partial(read_instructions, self._home, folder, self._config, self._settings)
        try:
            read = await self._reads.read(lambda: (work(), timezone_name()))
        except ConfigError as exc:
            self._found = Instructions(warnings=[str(exc)])
            return
        if read is None:
            what = f"{settings.cwd} did not answer in {READ_S:g} s: its AGENTS.md was not read"
            self._found = Instructions(warnings=[what])
            return
        self._found, self.timezone = read
        if first is not None and not is_here and self._environments is not None:
            await self._add_elsewhere(self._environments, first)

    async def _add_elsewhere(self, environments: Environments, first: WorkingFolder) -> None:
        """Add the files of another machine; if it is away, they are looked for again later."""
        there, is_reached = await read_elsewhere(environments, first, self._settings)
        texts = [text for text in (self._found.text, there.text) if text is not None]
        self._found.text = SEPARATOR.join(texts) or None
        self._found.sources += there.sources
        self._found.warnings += there.warnings
        if not is_reached:
            self._read_for = ()

    def _folder(self, settings: Settings) -> tuple[object, ...]:
        first = next(iter(settings.working_folders), None)
        if first is None:
            return settings.cwd, None, None
        name, environments = first.environment_id, self._environments
        # Another machine may have taken its name.
        instance_id = None if environments is None else environments.instance_of(name)
        return first.cwd, name, instance_id
