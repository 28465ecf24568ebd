"""One skill, read from its SKILL.md and agents/openai.yaml.

Everything here blocks: call it in a worker thread.
Source: docs/skills.md, "A skill".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from app_server.extensions.skills import FILE
from app_server.runtime.files.opening import BrokenFiles, inside, read_text
from protocol.integrations.skills import SkillDependencies, SkillInterface, SkillToolDependency

FENCE = "---"


def front_matter(text: str) -> dict[str, Any]:
    """Return the text between the two `---` at the head of a file.

    Raises:
        BrokenFiles: the text does not begin with it, it has no end, or it is no mapping.
    """
    lines = text.splitlines()
    if not lines or lines[0].strip() != FENCE:
        raise BrokenFiles("missing YAML frontmatter delimited by ---")
    ends = (number for number, line in enumerate(lines[1:], start=1) if line.strip() == FENCE)
    end = next(ends, None)
    if end is None:
        raise BrokenFiles("missing YAML frontmatter delimited by ---")
    return mapping("\n".join(lines[1:end]))


def mapping(text: str) -> dict[str, Any]:
    """Return the members of a mapping; an empty text has none.

    Raises:
        BrokenFiles: it is no YAML, or another value.
    """
    try:
        value = yaml.safe_load(text)
    except RecursionError as exc:
        raise BrokenFiles("invalid YAML: nested too deeply") from exc
    except (yaml.YAMLError, ValueError) as exc:
        # A date that does not exist is a ValueError.
        raise BrokenFiles(f"invalid YAML: {_first_line(exc)}") from exc
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BrokenFiles("invalid YAML: expected a mapping")
    return {str(name): member for name, member in value.items()}


def _first_line(exc: Exception) -> str:
    mark = getattr(exc, "problem_mark", None)
    problem = getattr(exc, "problem", None) or str(exc)
    return problem if mark is None else f"{problem} in line {mark.line + 1}"


MAX_NAME_CHARS = 64
MAX_DESCRIPTION_CHARS = 1024
MAX_TOOLS = 32
"""Tools that one skill may depend on; further ones are left out."""

METADATA = PurePosixPath("agents", "openai.yaml")
ASSETS = PurePosixPath("assets")
"""Folder of icons."""


@dataclass(frozen=True, slots=True)
class Skill:
    """One skill, named without its plugin."""

    name: str
    description: str
    file: Path
    short_description: str | None = None
    interface: SkillInterface | None = None
    dependencies: SkillDependencies | None = None
    is_listed: bool = True
    """Whether the model is shown it before the user names it."""


def read_skill(folder: Path) -> tuple[Skill | None, Sequence[tuple[Path, str]]]:
    """Read the skill in a folder; None if there is none, or it cannot be used.

    Also returns the files that could not be read, with the reason. What is wrong in
    agents/openai.yaml leaves the skill as if that file were not there.
    """
    file = folder / FILE
    try:
        text = read_text(folder, FILE)
        if text is None:
            return None, ()
        skill = parse_skill(text, file)
    except BrokenFiles as exc:
        return None, [(file, str(exc))]
    try:
        metadata = read_text(folder, METADATA)
        if metadata is None:
            return skill, ()
        return _with_metadata(skill, mapping(metadata), folder), ()
    except BrokenFiles as exc:
        return skill, [(folder / METADATA, str(exc))]


def parse_skill(text: str, file: Path) -> Skill:
    """Read the head of a SKILL.md; without a name it has that of its folder.

    Raises:
        BrokenFiles: there is no head, no description, or one of them is too long.
    """
    head = front_matter(text)
    name = _line(head.get("name")) or file.parent.name
    description = _line(head.get("description"))
    if len(name) > MAX_NAME_CHARS:
        raise BrokenFiles(f"invalid name: exceeds maximum length of {MAX_NAME_CHARS} characters")
    if description is None:
        raise BrokenFiles("missing field `description`")
    if len(description) > MAX_DESCRIPTION_CHARS:
        rule = f"exceeds maximum length of {MAX_DESCRIPTION_CHARS} characters"
        raise BrokenFiles(f"invalid description: {rule}")
    short = _line(_members(head, "metadata").get("short-description"))
    return Skill(name, description, file, short)


def _with_metadata(skill: Skill, metadata: Mapping[str, Any], folder: Path) -> Skill:
    shown = _members(metadata, "interface")
    interface = SkillInterface(
        display_name=_line(shown.get("display_name")),
        short_description=_line(shown.get("short_description")),
        icon_small=_icon(folder, shown.get("icon_small")),
        icon_large=_icon(folder, shown.get("icon_large")),
        brand_color=_line(shown.get("brand_color")),
        default_prompt=_line(shown.get("default_prompt")),
    )
    tools = _members(metadata, "dependencies").get("tools")
    needed = [_tool(tool) for tool in tools[:MAX_TOOLS]] if isinstance(tools, list) else []
    dependencies = SkillDependencies(tools=[tool for tool in needed if tool is not None])
    return replace(
        skill,
        interface=interface if shown else None,
        dependencies=dependencies if dependencies.tools else None,
        is_listed=_members(metadata, "policy").get("allow_implicit_invocation") is not False,
    )


def _tool(tool: object) -> SkillToolDependency | None:
    if not isinstance(tool, dict):
        return None
    members = {name: _line(tool.get(name)) for name in SkillToolDependency.model_fields}
    kind, value = members.pop("type"), members.pop("value")
    if kind is None or value is None:
        return None
    given = {name: member for name, member in members.items() if member is not None}
    return SkillToolDependency(type=kind, value=value, **given)


def _icon(folder: Path, name: object) -> str | None:
    """Return the path of an icon; only one in the skill's own assets counts."""
    text = _line(name)
    relative = None if text is None else PurePosixPath(text)
    if relative is None or relative.parts[:1] != ASSETS.parts or ".." in relative.parts:
        return None
    try:
        return str(inside(folder, relative))
    except BrokenFiles:
        return None


def _members(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    member = value.get(name)
    return member if isinstance(member, dict) else {}


def _line(value: object) -> str | None:
    """Return a text as one line; None for an empty one, or another type."""
    return " ".join(value.split()) or None if isinstance(value, str) else None
