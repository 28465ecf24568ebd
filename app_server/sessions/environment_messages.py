"""Environment context of one loaded thread's model, and the times at which it is sent.

From top to bottom: the machine's shell and time zone, files of instructions, skills, the messages.
Files of instructions are read when the thread is loaded and when its working directory becomes
another one. Whatever the history does not have yet is sent before the input of a turn, and, where
the settings of a running turn change, before its next request.
Source: docs/wire.md, "What the model is sent"; docs/skills.md, "In turns"; docs/environments.md,
"Threads in an environment".
"""

import os
import pwd
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from app_server.config.values import Config, ConfigError
from app_server.extensions.skills.catalog import SkillCatalog
from app_server.extensions.skills.in_turns import (
    MAX_NAMED,
    SCHEME,
    SkillNames,
    named_skills,
    skill_names,
    skills_text,
)
from app_server.host.environments import Environments, UnknownEnvironment
from app_server.host.folder_reads import READ_S, FolderReads
from app_server.models.prompt.environment_context import EnvironmentContext, KnownContext, news
from app_server.models.prompt.user_input import TurnInput, user_message
from app_server.sessions.agents_files import (
    SEPARATOR,
    Instructions,
    read_agents_settings,
    read_elsewhere,
    read_instructions,
)
from app_server.turns.context import ThreadContext
from app_server.turns.server_context import ServerContext
from protocol.log.rollout import LOCAL, HistoryAppended, Settings, WorkingFolder
from protocol.model import JsonObject
from protocol.turns.items import MentionUserInput, SkillUserInput, text_of_input

if TYPE_CHECKING:
    from app_server.extensions.skills.folders import FoundSkill

LOCALTIME = Path("/etc/localtime")
MAX_ZONE_CHARS = 64


def shell_name() -> str:
    """Name the shell of the user that this process runs as."""
    shell = os.environ.get("SHELL")
    if not shell:
        try:
            shell = pwd.getpwuid(os.getuid()).pw_shell
        except KeyError:
            shell = ""
    return Path(shell).name or ("zsh" if sys.platform == "darwin" else "bash")


def date_of(at_ms: int) -> str:
    """Render a day of the local calendar; `at_ms` is a Unix time."""
    return datetime.fromtimestamp(at_ms / 1000).astimezone().date().isoformat()


def timezone_name(localtime: Path = LOCALTIME) -> str | None:
    """Name the local time zone, as the database of time zones does; None if that is not known.

    `localtime` links to it where no variable names it.
    """
    named = os.environ.get("TZ", "").removeprefix(":")
    if not named:
        named = _linked_zone(localtime)
    if not named or named.startswith("/") or len(named) > MAX_ZONE_CHARS:
        return None
    return named


def _linked_zone(link: Path) -> str:
    try:
        return os.path.realpath(link, strict=True).partition("/zoneinfo/")[2]
    except OSError:
        return ""


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


@dataclass(slots=True)
class ThreadSkills:
    """The skills that are on in a thread's folder."""

    thread_id: str
    config: Config
    catalog: SkillCatalog
    reads: FolderReads
    found: "list[FoundSkill]" = field(default_factory=list, init=False)
    """Skills that were read last."""

    async def read(self, settings: Settings) -> None:
        """Read them; if the disk does not answer in time, what was read last stays."""
        folder = None if settings.without_environment else Path(settings.cwd)
        read = partial(self.catalog.enabled, folder, self.config.document, self.thread_id)
        found = await self.reads.read(read)
        if found is not None:
            self.found = found

    def used_by(self, user_input: TurnInput) -> "list[FoundSkill]":
        """Return the skills that an input has as parts of its own, or names with `$name`."""
        if not self.found:
            return []
        given = _paths(user_input)
        used = [one for one in self.found if str(one.skill.file) in given]
        named = named_skills(text_of_input(user_input.content), self.found)
        return used + [one for one in named if one not in used]

    def elsewhere(self, user_input: TurnInput) -> SkillNames:
        """Return what may name skills that are not in files: names that no file has, and URIs."""
        names = skill_names(text_of_input(user_input.content))
        in_files = {one.skill.name for one in self.found}
        paths = [*names.paths, *_paths(user_input), *_mentioned(user_input)]
        return SkillNames(
            tuple(name for name in names.plain if name not in in_files)[:MAX_NAMED],
            tuple(dict.fromkeys(path for path in paths if path.startswith(SCHEME)))[:MAX_NAMED],
        )


async def with_skills(user_input: TurnInput, used: "Sequence[FoundSkill]") -> TurnInput:
    """Add the text of the skills that an input names, and does not have as parts of its own."""
    given = _paths(user_input)
    named = [
        SkillUserInput(type="skill", name=one.skill.name, path=str(one.skill.file))
        for one in used
        if str(one.skill.file) not in given
    ]
    if not named:
        return user_input
    return replace(user_input, items=[*user_input.items, *await user_message(named)])


def _mentioned(user_input: TurnInput) -> list[str]:
    return [part.path for part in user_input.content if isinstance(part, MentionUserInput)]


def _paths(user_input: TurnInput) -> set[str]:
    """Return the files of the skills that an input has as parts of their own."""
    return {part.path for part in user_input.content if isinstance(part, SkillUserInput)}


ASK_S = 2.0
"""For all other machines together: a turn does not wait longer for one that is away."""


class EnvironmentMessages:
    """The messages that show the model of one loaded thread where it works."""

    def __init__(
        self,
        context: ThreadContext,
        instructions: ThreadInstructions,
        skills: ThreadSkills,
    ) -> None:
        """Show what is read of files of instructions and of skills."""
        self.skills = skills
        self._context = context
        self._has_proxy = context.settings.network_proxy is not None
        self._instructions = instructions
        self._shell = shell_name()
        self._environments = context.server.environments
        self._shells: Mapping[str, str] = {}
        self._in_history = KnownContext()
        self._sent_settings: Settings | None = None
        """The settings that the model was shown last, since the thread was loaded."""
        self._without_news: tuple[EnvironmentContext, Mapping[str, JsonObject]] | None = None
        """Of the last look that found nothing new."""

    async def news(self, settings: Settings) -> list[JsonObject]:
        """Make the messages for a turn that begins with these settings."""
        if not self._instructions.are_of(settings):
            await self._instructions.read(settings)
            for warning in self._instructions.take_warnings():
                self._context.clients.warning(warning)
        await self.skills.read(settings)
        self._shells = (
            await _shells_of(self._environments, settings) if settings.environments else {}
        )
        self._sent_settings = settings
        state = self._context.log.state
        waiting = [item for entry in state.pending_input for item in entry.items]
        known = self._in_history.look(state.history, waiting)
        looked_at = self._values(settings), known
        if looked_at == self._without_news:
            # As in most turns: the messages need not be made to be compared again.
            return []
        if not (messages := news(*looked_at)):
            self._without_news = looked_at
        return messages

    def all_of(self, settings: Settings) -> list[JsonObject]:
        """Make the messages for a model that knows nothing of the thread."""
        return news(self._values(settings), {})

    async def add_changes(self) -> None:
        """Send the model what changed in the running turn.

        Raises:
            OSError: the disk refused.
        """
        settings, sent = self._context.log.state.in_force, self._sent_settings
        if sent is settings or (sent is not None and _place(sent) == _place(settings)):
            return
        items: Sequence[JsonObject] = await self.news(settings)
        if items:
            record = HistoryAppended(at_ms=self._context.clock.now_ms(), items=list(items))
            await self._context.log.append(record, sync=False)

    def _values(self, settings: Settings) -> EnvironmentContext:
        return EnvironmentContext(
            settings=settings,
            instructions=self._instructions.text,
            skills=skills_text(self.skills.found) if self.skills.found else None,
            shell=self._shell,
            shells=self._shells,
            date=date_of(self._context.clock.now_ms()),
            timezone=self._instructions.timezone,
            has_proxy=self._has_proxy,
        )


def _place(settings: Settings) -> tuple[object, ...]:
    return (
        settings.cwd,
        settings.roots,
        settings.sandbox_policy,
        settings.approval_policy,
        settings.without_environment,
        settings.environments,
        settings.mode,
        settings.mode_instructions,
    )


async def _shells_of(environments: Environments, settings: Settings) -> dict[str, str]:
    """Return the names of the shells of a thread's other machines, by environment.

    One that is not known, or does not answer in 2 s, is left out.
    """
    ids = [one.environment_id for one in settings.working_folders if one.environment_id != LOCAL]
    shells: dict[str, str] = {}

    async def ask(environment_id: str) -> None:
        try:
            shell, _ = await environments.info(environment_id)
        except (OSError, UnknownEnvironment):
            return
        shells[environment_id] = shell.name

    with anyio.move_on_after(ASK_S):
        async with anyio.create_task_group() as tasks:
            for environment_id in ids:
                tasks.start_soon(ask, environment_id)
    return shells
