"""Skills, of a plugin or another folder: folders with a SKILL.md, which begins with what it is.

Source: docs/plugins.md, "A plugin".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from app_server.plugins.files import BrokenFiles, inside, read_text
from app_server.plugins.front_matter import read_front_matter

MAX_SKILLS = 128
"""Of one plugin; those behind them are left out."""

MAX_NAME_CHARS = 64

FILE = "SKILL.md"


@dataclass(frozen=True, slots=True)
class Skill:
    """One skill, named without its plugin."""

    name: str
    description: str
    file: Path
    short_description: str | None = None


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
                skills.append(parse_skill(text, root / relative))
        except BrokenFiles as exc:
            problems.append(f"skill {name}: {exc}")
    return skills, problems


def read_linked_skills(root: Path) -> tuple[Sequence[Skill], Sequence[tuple[Path, str]]]:
    """Read the skills in a folder of the user's, and the files that could not be read, with why.

    Links are followed, as users link skills from elsewhere; names that begin with a dot are not.
    """
    skills, problems = [], []
    for name in _folders(root):
        file = root / name / FILE
        try:
            if name.startswith(".") or not file.is_file():
                continue
            real = file.resolve()
            text = read_text(real.parent, real.name)
            if text is not None:
                skills.append(parse_skill(text, real))
        except BrokenFiles as exc:
            problems.append((file, str(exc)))
        except OSError as exc:
            problems.append((file, f"failed to read {FILE}: {exc.strerror}"))
    return skills, problems


def _folders(path: Path) -> Sequence[str]:
    try:
        if not path.is_dir():
            return ()
        return sorted(child.name for child in path.iterdir() if child.is_dir())[:MAX_SKILLS]
    except OSError:
        return ()


def parse_skill(text: str, file: Path) -> Skill:
    """Read the head of a SKILL.md; without a name it has that of its folder.

    Raises:
        BrokenFiles: there is no head, no description, or the name is too long.
    """
    front = read_front_matter(text)
    name, description = front.get("name") or file.parent.name, front.get("description")
    if len(name) > MAX_NAME_CHARS:
        raise BrokenFiles(f"invalid name: exceeds maximum length of {MAX_NAME_CHARS} characters")
    if not description:
        raise BrokenFiles("missing field `description`")
    return Skill(name, description, file, front.get("metadata.short-description") or None)
