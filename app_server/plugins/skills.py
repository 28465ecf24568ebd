"""The skills of a plugin: folders with a SKILL.md, which begins with what it is.

Source: docs/plugins.md, "A plugin".
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from app_server.plugins.files import BrokenFiles, inside, read_text

MAX_SKILLS = 128
"""Of one plugin; those behind them are left out."""

FILE = "SKILL.md"


@dataclass(frozen=True, slots=True)
class Skill:
    """One skill, named without its plugin."""

    name: str
    description: str
    file: Path


def read_skills(root: Path, folder: PurePosixPath) -> tuple[Sequence[Skill], Sequence[str]]:
    """Read the skills in a folder, by name of their own folder, and what is wrong with others.

    Raises:
        BrokenFiles: the folder leads out of the plugin.
    """
    skills, problems = [], []
    for name in _folders(inside(root, folder)):
        relative = folder / name / FILE
        try:
            text = read_text(root, relative)
            if text is not None:
                skills.append(_parse(text, root / relative))
        except BrokenFiles as exc:
            problems.append(f"skill {name}: {exc}")
    return skills, problems


def _folders(path: Path) -> Sequence[str]:
    if not path.is_dir():
        return ()
    try:
        return sorted(child.name for child in path.iterdir() if child.is_dir())[:MAX_SKILLS]
    except OSError:
        return ()


def _parse(text: str, file: Path) -> Skill:
    front = dict(_front_matter(text))
    name, description = front.get("name", file.parent.name), front.get("description")
    if not description:
        raise BrokenFiles("missing field `description`")
    return Skill(name, description, file)


def _front_matter(text: str) -> Iterator[tuple[str, str]]:
    """Read the members on a line of their own; nested ones are none of our business."""
    lines = text.splitlines()
    if not lines or lines[0].strip() != "---" or "---" not in [line.strip() for line in lines[1:]]:
        raise BrokenFiles("missing YAML frontmatter delimited by ---")
    for line in lines[1:]:
        if line.strip() == "---":
            return
        key, separator, value = line.partition(":")
        if separator and key == key.strip():
            yield key, value.strip().strip("\"'")
