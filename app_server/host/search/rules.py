"""The ignore rules of a folder, put together from the ignore files that concern it.

Everything here blocks.
Source: gitignore(5); docs/tools.md, "Host methods".
"""

import os
import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from app_server.host.search.ignore_file import IgnoreFiles, Placed, compile_ignore_file, decide
from app_server.runtime.files.repository import is_repository, repository_of
from app_server.runtime.user_paths import expand_user

READ_BYTES = 1024 * 1024

_EXCLUDES = re.compile(
    r"^\s*\[core\][^\[]*?^\s*excludesfile\s*=\s*(?P<path>[^\n#;]+)", re.I | re.M | re.S
)


def exclude_files(repository: Path) -> Iterator[Path]:
    """Name the files of exclusions of a repository, the weakest first; they need not exist."""
    yield _of_user()
    git = repository / ".git"
    if git.is_file():
        git = repository / read_text(git).removeprefix("gitdir: ").strip()
        git = git / (read_text(git / "commondir").strip() or ".")
    yield git / "info" / "exclude"


def read_text(path: Path) -> str:
    """Return the beginning of a file; nothing for one that cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        text = os.read(descriptor, READ_BYTES).decode("utf-8-sig", errors="replace")
        # No path has a null character: what is read here names files and patterns.
        return text.replace("\0", "")
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def _of_user() -> Path:
    home = expand_user("~")
    config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    for file in (home / ".gitconfig", config / "git" / "config"):
        found = _EXCLUDES.search(read_text(file))
        if found is not None:
            return expand_user(found["path"].strip().strip('"'))
    return config / "git" / "ignore"


GIT = ".git"
GITIGNORE = ".gitignore"
IGNORE = ".ignore"
_OF_RULES = frozenset({GIT, GITIGNORE, IGNORE})

Stamp: TypeAlias = tuple[int, int, int] | None
"""Time, size and inode; None for what is not there."""


@dataclass(frozen=True)
class Rules:
    """The ignore rules of a folder: `.ignore` files override Git's."""

    plain: IgnoreFiles = ()
    git: IgnoreFiles = ()
    in_repository: bool = False

    def may_ignore(self, prefix: str, names: Set[str], joined: str) -> bool:
        """Whether one of these names in the folder of a prefix may be ignored; most are not.

        `joined` has the names with a NUL before, between and behind them.
        """
        if not self._names.isdisjoint(names):
            return True
        # Not any(…): this is asked of every folder.
        for regex in self._of_names:
            if regex.search(joined):
                return True
        for placed, folder in self._whole_folders:
            if placed.below(prefix).startswith(folder):
                return True
        return False

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(name for placed in self._files() for name in placed.file.names)

    @cached_property
    def _of_names(self) -> Sequence[re.Pattern[str]]:
        tails = {re.escape(tail) for placed in self._files() for tail in placed.file.tails}
        others = {regex for placed in self._files() for regex in placed.file.other_names}
        found = []
        if tails:
            found.append(re.compile(rf"\.(?:{'|'.join(sorted(tails))})\0"))
        if others:
            found.append(re.compile(rf"\0(?:{'|'.join(sorted(others))})\0"))
        return found

    @cached_property
    def _whole_folders(self) -> Sequence[tuple[Placed, str]]:
        return [
            (placed, folder) for placed in self._files() for folder in placed.file.whole_folders
        ]

    def _files(self) -> Iterator[Placed]:
        yield from self.plain
        yield from self.git

    def ignore(self, path: str, name: str, *, is_folder: bool) -> bool:
        """Whether a path below the root of the search is ignored."""
        if self.plain:
            said = decide(self.plain, path, name, is_folder=is_folder)
            if said is not None:
                return said
        return bool(self.git) and bool(decide(self.git, path, name, is_folder=is_folder))


class RuleReader:
    """Reads ignore files for one search root."""

    def __init__(self, root: Path) -> None:
        """Read nothing yet."""
        self._root = root
        self._outside: dict[str, Stamp] = {}

    @property
    def has_changed(self) -> bool:
        """Whether an ignore file outside of the root is another one than when it was read."""
        return any(stamp_of(path) != stamp for path, stamp in self._outside.items())

    def above(self) -> Rules:
        """Return the rules that come from outside of the root."""
        self._outside = {}
        repository = repository_of(self._root)
        rules = Rules(in_repository=repository is not None)
        if repository is not None:
            below = "".join(f"{part}/" for part in self._root.relative_to(repository).parts)
            for file in exclude_files(repository):
                self._outside[str(file)] = stamp_of(file)
                rules = Rules(rules.plain, _with(rules.git, file, 0, below), True)
        for parent in reversed(self._root.parents):
            below = "".join(f"{part}/" for part in self._root.relative_to(parent).parts)
            plain, git = parent / IGNORE, parent / GITIGNORE
            self._outside[str(plain)] = stamp_of(plain)
            added = _with(rules.plain, plain, 0, below)
            of_git = rules.git
            if repository is not None and (parent == repository or repository in parent.parents):
                self._outside[str(git)] = stamp_of(git)
                of_git = _with(of_git, git, 0, below)
            rules = Rules(added, of_git, rules.in_repository)
        return rules

    def inside(self, outer: Rules, prefix: str, names: Set[str]) -> tuple[Rules, dict[str, Stamp]]:
        """Return the rules of a folder, and the stamps of the ignore files in it.

        `outer` are those of the folder that it is in, `names` is what it has.
        """
        if names.isdisjoint(_OF_RULES):
            return outer, {}
        plain, git, in_repository = outer.plain, outer.git, outer.in_repository
        folder, stamps = self._root / prefix, dict[str, Stamp]()
        if GIT in names and prefix and is_repository(folder):
            # Another repository: those above say nothing about what is in it.
            git, in_repository = (), True
            for file in exclude_files(folder):
                stamps[str(file)] = stamp_of(file)
                git = _with(git, file, len(prefix))
        for name in names & {GITIGNORE, IGNORE}:
            file = folder / name
            stamps[str(file)] = stamp_of(file)
            if name == IGNORE:
                plain = _with(plain, file, len(prefix))
            elif in_repository:
                git = _with(git, file, len(prefix))
        return (Rules(plain, git, in_repository) if stamps else outer), stamps


def _with(files: IgnoreFiles, path: Path, cut: int, above: str = "") -> IgnoreFiles:
    file = compile_ignore_file(read_text(path))
    return files if file is None else (Placed(file, cut, above), *files)


def stamp_of(path: str | Path) -> Stamp:
    """Look at the time, the size and the inode of what is at a path."""
    try:
        found = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
