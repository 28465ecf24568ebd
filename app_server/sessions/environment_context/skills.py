"""Skills of one loaded thread: their list for the model, and the text of skills named in input.

Source: docs/skills.md, "In turns".
"""

from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from app_server.config.values import Config
from app_server.extensions.skills.catalog import SkillCatalog
from app_server.extensions.skills.dependencies import NeededServer, needed_servers
from app_server.extensions.skills.instructions import (
    MAX_NAMED,
    SCHEME,
    SkillNames,
    named_skills,
    skill_names,
    skills_text,
)
from app_server.host.folder_reads import FolderReads
from app_server.models.prompt.user_input import TurnInput, user_message
from protocol.log.rollout import Settings
from protocol.turns.items import MentionUserInput, SkillUserInput, text_of_input

if TYPE_CHECKING:
    from app_server.extensions.skills.folders import FoundSkill


@dataclass(slots=True)
class ThreadSkills:
    """The skills that are on in a thread's folder."""

    thread_id: str
    config: Config
    catalog: SkillCatalog
    reads: FolderReads
    _found: "list[FoundSkill]" = field(default_factory=list, init=False)

    async def read(self, settings: Settings) -> None:
        """Read them; if the disk does not answer in time, what was read last stays."""
        folder = None if settings.without_environment else Path(settings.cwd)
        read = partial(self.catalog.enabled, folder, self.config.document, self.thread_id)
        found = await self.reads.read(read)
        if found is not None:
            self._found = found

    def text(self) -> str | None:
        """Return the model's list of the skills that were read last."""
        return skills_text(self._found)

    async def with_named(self, user_input: TurnInput) -> TurnInput:
        """Add the text of skills that the input names with `$name`, and does not have yet."""
        given = _paths(user_input)
        named = [
            SkillUserInput(type="skill", name=one.skill.name, path=str(one.skill.file))
            for one in self._named(user_input)
            if str(one.skill.file) not in given
        ]
        if not named:
            return user_input
        return replace(user_input, items=[*user_input.items, *await user_message(named)])

    def needed_servers(self, user_input: TurnInput) -> list[NeededServer]:
        """Return the MCP servers that the skills of an input declare."""
        return needed_servers(self._used(user_input))

    def plugins(self, user_input: TurnInput) -> list[str]:
        """Return the ids of the plugins that the skills of an input come from."""
        used = self._used(user_input)
        return [one.plugin_id for one in used if one.plugin_id is not None]

    def elsewhere(self, user_input: TurnInput) -> SkillNames:
        """Return what may name skills that are not in files: names that no file has, and URIs."""
        names = skill_names(text_of_input(user_input.content))
        in_files = {one.skill.name for one in self._found}
        paths = [*names.paths, *_paths(user_input), *_mentioned(user_input)]
        return SkillNames(
            tuple(name for name in names.plain if name not in in_files)[:MAX_NAMED],
            tuple(dict.fromkeys(path for path in paths if path.startswith(SCHEME)))[:MAX_NAMED],
        )

    def _used(self, user_input: TurnInput) -> "list[FoundSkill]":
        given = _paths(user_input)
        used = [one for one in self._found if str(one.skill.file) in given]
        return used + [one for one in self._named(user_input) if one not in used]

    def _named(self, user_input: TurnInput) -> "list[FoundSkill]":
        return named_skills(text_of_input(user_input.content), self._found)


def _mentioned(user_input: TurnInput) -> list[str]:
    return [part.path for part in user_input.content if isinstance(part, MentionUserInput)]


def _paths(user_input: TurnInput) -> set[str]:
    """Return the files of the skills that an input has as parts of their own."""
    return {part.path for part in user_input.content if isinstance(part, SkillUserInput)}
