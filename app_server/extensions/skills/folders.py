"""Roots of skills, the skills below them, and which are switched off: `[[skills.config]]`.

Everything here blocks: call it in a worker thread. What reads skills is imported with the first.
Source: docs/skills.md, "Where skills are", "Switching skills off".
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app_server.extensions.skills import FILE
from app_server.runtime.files.repository import folders_of_project
from app_server.runtime.loader import load_from_worker

if TYPE_CHECKING:
    from app_server.extensions.skills.skill_file import Skill
    from protocol.integrations.skills import SkillScope

MAX_ENTRIES = 1_000


def is_enabled(name: str, file: Path, settings: Mapping[str, Any]) -> bool:
    """Whether the settings leave a skill on; the last entry about it counts."""
    enabled = True
    for entry in entries_of(settings):
        if entry.get("name") == name or entry.get("path") == str(file):
            enabled = entry.get("enabled", True) is not False
    return enabled


def entries_of(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the entries of `skills.config`; invalid ones are left out."""
    table = settings.get("skills")
    entries = table.get("config") if isinstance(table, dict) else None
    return [entry for entry in entries if isinstance(entry, dict)] if entries else []


def switched(
    settings: Mapping[str, Any], key: str, value: str, *, enabled: bool
) -> list[dict[str, Any]]:
    """Return the entries with a skill on or off, which `key` names by `name` or by `path`.

    A skill is on without an entry.
    """
    others = [entry for entry in entries_of(settings) if entry.get(key) != value]
    return others if enabled else [*others, {key: value, "enabled": False}]


MAX_SKILLS = 128
"""Of one root; those behind them are left out."""

MAX_FOLDERS = 2_000
"""Folders that are looked into below one root."""

MAX_DEPTH = 6
"""Of folders below a root."""

PROJECT_ROOTS = (Path(".agents", "skills"), Path(".codex", "skills"))
SYSTEM = ".system"
"""Folder below the user's skills, with the skills that a version of Codex brought."""

ADMIN = Path("/etc/codex/skills")


@dataclass(frozen=True, slots=True)
class SkillRoot:
    """A folder that has skills, at some depth."""

    scope: "SkillScope"
    path: Path


@dataclass(frozen=True, slots=True)
class FoundSkill:
    """One skill, and whom it is there for."""

    scope: "SkillScope"
    skill: "Skill"
    plugin_id: str | None = None

    def is_enabled(self, settings: Mapping[str, Any]) -> bool:
        """Whether the settings leave it on."""
        return is_enabled(self.skill.name, self.skill.file, settings)


@dataclass(frozen=True, slots=True)
class Skills:
    """The skills of some roots, and the files that could not be read, with the reason."""

    found: Sequence[FoundSkill]
    problems: Sequence[tuple[Path, str]]


def user_roots(home: Path, user_home: Path, extra: Sequence[Path]) -> list[SkillRoot]:
    """Return the roots that all folders share; `home` is the server's."""
    return [
        SkillRoot("user", home / "skills"),
        SkillRoot("user", user_home / ".agents" / "skills"),
        *(SkillRoot("user", path) for path in extra),
        SkillRoot("system", home / "skills" / SYSTEM),
        SkillRoot("admin", ADMIN),
    ]


def project_roots(folder: Path) -> list[SkillRoot]:
    """Return the skill roots of a folder and its parents, up to its repository."""
    return [
        SkillRoot("repo", ancestor / below)
        for ancestor in folders_of_project(folder)
        for below in PROJECT_ROOTS
    ]


def read_roots(roots: Sequence[SkillRoot]) -> Skills:
    """Read the skills of roots; one that several links lead to counts where it is found first."""
    read_skill: Callable[[Path], tuple[Skill | None, Sequence[tuple[Path, str]]]] | None = None
    found: dict[Path, FoundSkill] = {}
    problems: dict[Path, str] = {}
    for root in roots:
        number = 0
        for folder in _skill_folders(root.path):
            if read_skill is None:
                read_skill = load_from_worker(_reader)
            skill, wrong = read_skill(folder)
            problems.update(wrong)
            if skill is not None:
                found.setdefault(skill.file, FoundSkill(root.scope, skill))
                number += 1
                if number == MAX_SKILLS:
                    break
    return Skills(list(found.values()), sorted(problems.items()))


def _reader() -> "Callable[[Path], tuple[Skill | None, Sequence[tuple[Path, str]]]]":
    from app_server.extensions.skills.skill_file import read_skill

    return read_skill


def _skill_folders(root: Path) -> Iterator[Path]:
    """Find the folders with a SKILL.md below a root; such a folder is not searched further.

    Links are followed, as users link skills from elsewhere. Names that begin with a dot are not.
    """
    seen: set[Path] = set()
    waiting = [(root, 0)]
    looked_into = 0
    while waiting and looked_into < MAX_FOLDERS:
        folder, depth = waiting.pop(0)
        looked_into += 1
        try:
            real = folder.resolve()
            if real in seen:
                continue
            seen.add(real)
            names = sorted(
                entry.name
                for entry in os.scandir(real)
                if not entry.name.startswith(".") and entry.is_dir()
            )
        except (OSError, RuntimeError):
            # It is not there, or may not be read, or links lead in a circle.
            continue
        if depth and (real / FILE).is_file():
            yield real
        elif depth < MAX_DEPTH:
            waiting += [(folder / name, depth + 1) for name in names]
