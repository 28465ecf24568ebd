"""Where skills are, and those that are there.

Everything here blocks: call it in a worker thread.
Source: docs/skills.md, "Where skills are".
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from app_server.skills.reading import FILE, Skill, read_skill
from protocol.skills import SkillScope

MAX_SKILLS = 128
"""Of one root; those behind them are left out."""

MAX_FOLDERS = 2_000
"""That are looked into below one root."""

MAX_DEPTH = 6
"""Of folders below a root."""

MAX_ANCESTORS = 64
"""Folders from a working folder up to the root of its repository."""

PROJECT_ROOTS = (Path(".agents", "skills"), Path(".codex", "skills"))
SYSTEM = ".system"
"""A folder below the user's skills, with those that a version of Codex brought."""

ADMIN = Path("/etc/codex/skills")


@dataclass(frozen=True, slots=True)
class Root:
    """A folder that has skills, at some depth."""

    scope: SkillScope
    path: Path


@dataclass(frozen=True, slots=True)
class Found:
    """One skill, and whom it is there for."""

    scope: SkillScope
    skill: Skill
    plugin_id: str | None = None


@dataclass(frozen=True, slots=True)
class Skills:
    """The skills of some roots, and the files that could not be read, with the reason."""

    found: Sequence[Found]
    problems: Sequence[tuple[Path, str]]


def user_roots(home: Path, user_home: Path, extra: Sequence[Path]) -> list[Root]:
    """Return the roots that all folders share; `home` is the server's."""
    return [
        Root("user", home / "skills"),
        Root("user", user_home / ".agents" / "skills"),
        *(Root("user", path) for path in extra),
        Root("system", home / "skills" / SYSTEM),
        Root("admin", ADMIN),
    ]


def project_roots(folder: Path) -> list[Root]:
    """Return the roots of a folder and of those above it, up to that of its repository."""
    ancestors = [folder, *folder.parents][:MAX_ANCESTORS]
    depth = next((n for n, parent in enumerate(ancestors) if (parent / ".git").exists()), 0)
    return [
        Root("repo", ancestor / below)
        for ancestor in ancestors[: depth + 1]
        for below in PROJECT_ROOTS
    ]


def read_roots(roots: Sequence[Root]) -> Skills:
    """Read the skills of roots; one that several links lead to counts where it is found first."""
    found: dict[Path, Found] = {}
    problems: dict[Path, str] = {}
    for root in roots:
        number = 0
        for folder in _skill_folders(root.path):
            skill, wrong = read_skill(folder)
            problems.update(wrong)
            if skill is not None:
                found.setdefault(skill.file, Found(root.scope, skill))
                number += 1
                if number == MAX_SKILLS:
                    break
    return Skills(list(found.values()), sorted(problems.items()))


def _skill_folders(root: Path) -> Iterator[Path]:
    """Find the folders below a root that have a SKILL.md; what is below one of them is its own.

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


def read_folders(
    folders: Sequence[Path], home: Path, user_home: Path, extra: Sequence[Path]
) -> tuple[Sequence[Path], list[Skills]]:
    """Read the skills that each folder has; also returns all roots, whether they exist or not."""
    shared = user_roots(home, user_home, extra)
    per_folder = [[*project_roots(folder), *shared] for folder in folders]
    every = dict.fromkeys(root.path for roots in per_folder for root in roots)
    return list(every), [read_roots(roots) for roots in per_folder]
