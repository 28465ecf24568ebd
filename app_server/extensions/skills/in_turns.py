"""Skills in turns: instructions for a model, skills that a text names, servers needed. No I/O.

Source: docs/skills.md, "In turns", "Servers that skills need".
"""

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from app_server.extensions.skills.folders import FoundSkill

if TYPE_CHECKING:
    from protocol.integrations.skills import SkillToolDependency

logger = logging.getLogger(__name__)

MAX_BYTES = 12 * 1024
"""UTF-8 bytes of what a model is shown of all skills; of more, only the names."""

MAX_NAMED = 16
"""Skills that one input names, and that are read to the model."""

INTRODUCTION = """\
A skill is a folder with instructions for one kind of work. When the task fits the description of \
a skill below, or the user names one with `$name`, read its SKILL.md whole before you begin, and \
do as it says. It may refer to other files of its folder: read those that you need. Read no skill \
that does not fit. The skills:"""

SCHEME = "skill://"
"""May stand before the file of a skill in a link; a skill of an MCP server has it as its own."""

# Both begin with what is rare in a text: the rest of it is passed over at once.
_NAMED = re.compile(r"\$(?<![\w$]\$)([A-Za-z0-9][A-Za-z0-9_:-]*)")
_LINK = re.compile(r"\[\$[^\[\]\n]{1,256}\]\(([^()\n]{1,4096})\)")


@dataclass(frozen=True, slots=True)
class SkillNames:
    """Mentions of skills in a text, each once, in its order."""

    plain: Sequence[str] = ()
    """As in `$name`."""
    paths: Sequence[str] = ()
    """As in `[$name](path)`; other things are linked to like that, too."""

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self.plain or self.paths)


def skill_names(text: str) -> SkillNames:
    """Return the mentions and links of a text that may name skills."""
    if "$" not in text:
        return SkillNames()
    paths = dict.fromkeys(path.strip() for path in _LINK.findall(text))
    return SkillNames(tuple(dict.fromkeys(_NAMED.findall(_LINK.sub(" ", text)))), tuple(paths))


def skills_text(found: Sequence[FoundSkill]) -> str | None:
    """List the skills that the model may choose by itself; None if there are none."""
    listed = sorted(
        (one.skill for one in found if one.skill.is_listed), key=lambda skill: skill.name
    )
    if not listed:
        return None
    whole = [f"- {skill.name}: {skill.description} (file: {skill.file})" for skill in listed]
    names = [f"- {skill.name} (file: {skill.file})" for skill in listed]
    if _size(whole) <= MAX_BYTES:
        return "\n".join((INTRODUCTION, *whole))
    kept: list[str] = []
    for name in names:
        if _size([*kept, name]) > MAX_BYTES:
            break
        kept.append(name)
    left_out = len(names) - len(kept)
    more = [f"- and {left_out} more, which are not listed"] if left_out else []
    return "\n".join((INTRODUCTION, *kept, *more))


def named_skills(text: str, found: Sequence[FoundSkill]) -> list[FoundSkill]:
    """Return the skills that a text names or links to, each once; a name of two names none."""
    if not found:
        return []
    names = skill_names(text)
    files = {path.removeprefix(SCHEME) for path in names.paths}
    named = [one for one in found if str(one.skill.file) in files]
    for name in names.plain:
        matching = [one for one in found if one.skill.name == name]
        if len(matching) == 1 and matching[0] not in named:
            named.append(matching[0])
    return named[:MAX_NAMED]


def _size(lines: Sequence[str]) -> int:
    return sum(len(line.encode()) + 1 for line in lines)


Key: TypeAlias = Literal["command", "url"]

_KEYS: dict[str, Key] = {"stdio": "command", "streamable_http": "url"}
"""Key of config.toml that configures a server, by its transport."""


@dataclass(frozen=True, slots=True)
class NeededServer:
    """One server, as a skill describes it."""

    name: str
    key: Key
    value: str
    """The command, without arguments, or the URL."""

    @property
    def table(self) -> dict[str, str]:
        """Table for `[mcp_servers.NAME]`."""
        return {self.key: self.value}


def needed_servers(skills: Sequence[FoundSkill]) -> list[NeededServer]:
    """Return the servers that skills declare, each command and each URL once, in their order.

    What cannot be a server is left out, and logged.
    """
    needed: dict[tuple[Key, str], NeededServer] = {}
    for one in skills:
        declared = one.skill.dependencies
        for tool in () if declared is None else declared.tools:
            if tool.type.lower() != "mcp":
                continue
            server = _server(tool)
            if server is None:
                logger.warning("skill %s: %s is no usable server", one.skill.name, tool.value)
                continue
            needed.setdefault((server.key, server.value), server)
    return list(needed.values())


def _server(tool: "SkillToolDependency") -> NeededServer | None:
    key = _KEYS.get((tool.transport or "streamable_http").lower())
    value = None if key is None else getattr(tool, key)
    return None if key is None or not value else NeededServer(tool.value, key, value)
