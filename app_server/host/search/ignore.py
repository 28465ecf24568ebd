"""The ignore rules of a folder: its ignore files, and their patterns, as Git means them.

They are made fast for 100,000 names. Reading a file blocks. Git compares bytes: `?` and `[!a]` fit
half of an `é`. So the expressions are for texts in which each letter is a byte, see `as_bytes`.
What a star has passed over is in an atomic group wherever another length could not help: so no
pattern takes long. Most patterns need no more than a table: `name`, `*.ext`, `folder/name`. What
others want of a name is one expression, so that one search tells whether a folder has any such
name.
Source: gitignore(5); glob(7); docs/tools.md, "Host methods".
"""

import itertools
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from app_server.runtime.files.repository import is_repository, repository_of
from app_server.runtime.user_paths import expand_user

CLASSES: Mapping[str, str] = {
    "alnum": "A-Za-z0-9",
    "alpha": "A-Za-z",
    "blank": r" \t",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": r"!-\~",
    "lower": "a-z",
    "print": r" -\~",
    "punct": r"!-/:-@\[-`{-\~",
    "space": r" \t\n\r",
    "upper": "A-Z",
    "xdigit": "A-Fa-f0-9",
}
"""Insides of Python's sets; Git's classes are those of ASCII."""

_TOKEN = re.compile(
    r"""
    (?P<plain>[^*?\[\\]+)
    | (?P<stars>\*+) (?P<slash>/?)
    | (?P<any>\?)
    | \\ (?P<escaped>.)
    | \[ (?P<negated>[!^]?+)
      (?P<inside>
        # The first letter may be a bracket. One that ends a range begins no class.
        (?> \[:[^]]*:\] | (?:\\.|[^\\])  (?:-(?:\\.|[^]\\]))? )
        (?> \[:[^]]*:\] | (?:\\.|[^]\\]) (?:-(?:\\.|[^]\\]))? )*+
      ) \]
    | (?P<without_end>.)
    """,
    re.VERBOSE | re.DOTALL,
)

_PART = re.compile(r"\[:(?P<name>[^]]*):\]|(?P<first>\\?.)(?:-(?P<last>\\?.))?", re.DOTALL)

_ANY = "[^/]*"
_FOLDERS = "(?:[^/]*/)*"


def as_bytes(text: str) -> str:
    """Return a text with a letter for each byte; surrogates in `text` are bytes outside UTF-8."""
    return text if text.isascii() else text.encode(errors="surrogateescape").decode("latin-1")


def expression(pattern: str) -> str:
    """Compile a pattern into an expression that matches whole paths, as of `as_bytes`.

    The pattern comes without `!`, and without the slash behind it that wants a folder.

    Raises:
        ValueError: it has a set without an end, one with a class that there is not, or a backslash
            at its end: it fits nothing.
    """
    is_path = "/" in pattern
    out = [] if is_path else [_FOLDERS]
    pattern = as_bytes(pattern.removeprefix("/"))
    star = folders = None
    """Indexes in `out` of the `*` and `**` whose groups are open."""
    for found in _TOKEN.finditer(pattern):
        if not found["stars"]:
            out.append(_letters(found))
            continue
        is_wide = is_path and _is_wide(pattern, found)
        if star is not None:
            out.append(")")
        if is_wide and folders is not None:
            out.append(")")
        if not is_wide:
            star = len(out)
            out += [f"(?>{_ANY}?", found["slash"]]
        elif found["slash"]:
            star, folders = None, len(out)
            out.append(f"(?>{_FOLDERS}?")
        else:
            star = folders = None
            out.append(".*")
    # The last ones have to reach to the end, whichever lengths that takes.
    if star is not None:
        out[star] = _ANY
    if folders is not None:
        out[folders] = _FOLDERS
    return "".join(out)


def _letters(found: re.Match[str]) -> str:
    if found["without_end"]:
        raise ValueError("a set or an escape without an end")
    if found["any"]:
        return "[^/]"
    if found["inside"]:
        return f"(?!/)[{'^' if found['negated'] else ''}{''.join(_parts(found['inside']))}]"
    return re.escape(found["plain"] or found["escaped"])


def _is_wide(pattern: str, stars: re.Match[str]) -> bool:
    """Whether stars match slashes too: two, with no letters beside them, or after letters."""
    literal = re.match(r"[^*?\[\\]*", pattern)
    assert literal is not None
    begins = stars.start() == literal.end() or pattern[stars.start() - 1] == "/"
    ends = stars["slash"] or pattern[stars.end() :][:2] in ("", "\\/")
    return len(stars["stars"]) > 1 and begins and bool(ends)


def _parts(inside: str) -> Iterator[str]:
    for found in _PART.finditer(inside):
        if found["name"] is not None:
            if found["name"] not in CLASSES:
                raise ValueError("no such class of letters")
            yield CLASSES[found["name"]]
            continue
        first = found["first"][-1]
        last = first if found["last"] is None else found["last"][-1]
        yield re.escape(first)
        # A range that runs backwards has its first letter alone.
        if first < last:
            yield f"-{re.escape(last)}"


MAX_BYTES = 1024 * 1024
"""Of one ignore file; what comes after it is not read."""

MAX_PATTERNS = 10_000
"""Of one ignore file; the last ones count."""

MAX_SPELLINGS = 16
"""Of one pattern with sets of letters, such as `[Bb]in`; what has more is not spelled out."""

_PLAIN = re.compile(
    r"(?:\*\.(?P<ext>[\w-]+)|(?P<folder>/?(?:\.?[\w-][\w.-]*/)*)(?P<name>\.?[\w-][\w.-]*))"
    r"(?P<slash>/?)\Z",
    re.ASCII,
)
"""A pattern that a table decides: an extension, a name, or a path."""

_SET = re.compile(r"\[([\w.]+)\]", re.ASCII)
_TAIL = re.compile(r"\*[\w$-]*\.(?P<tail>(?:[\w-]+\.)*(?P<ext>[\w-]+))\Z", re.ASCII)
_ANY_NAME = re.compile(r"\[|[^*/]\*\*+\Z")
"""Before the last slash of a pattern: it may be a letter of a set, or be fitted by nothing."""
_WILD = re.compile(r"[*?\[\\]")
_STARS = re.compile(r"\**\Z")


@dataclass(frozen=True, slots=True)
class _Pattern:
    place: int
    """The last one that fits decides."""
    ignores: bool
    folders_only: bool = False
    path: str | None = None
    """The only path that it is about; None for one about names in all folders."""
    regex: re.Pattern[str] | None = None
    """Fits the paths, as `as_bytes` has them, that it is about."""

    def fits(self, path: str, *, is_folder: bool) -> bool:
        """Whether it is about a path, which has a name that it is about."""
        if self.folders_only and not is_folder:
            return False
        if self.regex is None:
            return self.path in (None, path)
        return self.regex.fullmatch(as_bytes(path)) is not None


@dataclass(slots=True)
class IgnoreFile:
    """Patterns about paths below one folder."""

    names: dict[str, list[_Pattern]] = field(default_factory=dict)
    extensions: dict[str, list[_Pattern]] = field(default_factory=dict)
    """By what is behind the last dot of a name."""
    tails: set[str] = field(default_factory=set)
    """Suffixes behind a dot: a name that `extensions` match ends with one of them."""
    others: list[_Pattern] = field(default_factory=list)
    other_names: set[str] = field(default_factory=set)
    """Expressions of the names that others are about; they may fit more."""
    whole_folders: set[str] = field(default_factory=set)
    """Folders, with a slash behind, below which others may be about any name; empty for all."""
    any_other: re.Pattern[str] | None = None
    """Fits whatever one of the others fits."""

    def decide(self, path: str, name: str, *, is_folder: bool) -> bool | None:
        """Whether it ignores a path below its folder; None without a matching pattern."""
        best: _Pattern | None = None
        for pattern in self._about(path, name):
            is_last = best is None or pattern.place > best.place
            if is_last and pattern.fits(path, is_folder=is_folder):
                best = pattern
        return None if best is None else best.ignores

    def _about(self, path: str, name: str) -> Iterator[_Pattern]:
        yield from self.names.get(name, ())
        if self.extensions:
            # `*.ext` fits `a.b.ext`, and `.ext` too.
            dot = name.rfind(".")
            if dot >= 0:
                yield from self.extensions.get(name[dot + 1 :], ())
        if self.any_other is not None and self.any_other.fullmatch(as_bytes(path)):
            yield from reversed(self.others)


def compile_ignore_file(text: str) -> IgnoreFile | None:
    """Read the lines of an ignore file; None if there is no pattern in it."""
    compiled = IgnoreFile()
    for place, line in enumerate(text.split("\n")[-MAX_PATTERNS:]):
        pattern = _without_spaces(line.removesuffix("\r"))
        if not line.startswith("#") and pattern:
            _add(compiled, pattern.removeprefix("!"), place, ignores=not pattern.startswith("!"))
    sources = [other.regex.pattern for other in compiled.others if other.regex is not None]
    if sources:
        compiled.any_other = re.compile("|".join(sources), re.DOTALL)
    is_empty = not (compiled.names or compiled.extensions or compiled.others)
    return None if is_empty else compiled


def _without_spaces(line: str) -> str:
    """Take away the spaces at the end, but for one behind a backslash."""
    bare = line.rstrip(" ")
    backslashes = len(bare) - len(bare.rstrip("\\"))
    return line[: len(bare) + backslashes % 2]


def _add(compiled: IgnoreFile, pattern: str, place: int, *, ignores: bool) -> None:
    spellings = _spellings(pattern)
    plain = [found for found in map(_PLAIN.match, spellings) if found is not None]
    if len(plain) == len(spellings):
        for found in plain:
            _add_plain(compiled, found, place, ignores=ignores)
        return
    try:
        regex = re.compile(expression(pattern.removesuffix("/")), re.DOTALL)
    except ValueError:
        # It fits nothing.
        return
    other = _Pattern(place, ignores, pattern.endswith("/"), regex=regex)
    for spelling in spellings:
        _add_other(compiled, spelling, other)


def _spellings(pattern: str) -> Sequence[str]:
    """Spell out sets of letters: `[Bb]in` is `Bin` and `bin`."""
    sets = _SET.findall(pattern)
    count = math.prod(map(len, sets))
    if not sets or count > MAX_SPELLINGS or "\\" in pattern or pattern.count("[") > len(sets):
        return [pattern]
    parts = _SET.split(pattern)
    # Every second part is the inside of a set.
    return ["".join(spelled) for spelled in itertools.product(*_choices(parts))]


def _choices(parts: Sequence[str]) -> Iterator[Sequence[str]]:
    for number, part in enumerate(parts):
        yield part if number % 2 else [part]


def _add_plain(compiled: IgnoreFile, found: re.Match[str], place: int, *, ignores: bool) -> None:
    name, folder = found["name"], found["folder"]
    path = f"{folder}{name}".removeprefix("/") if folder else None
    pattern = _Pattern(place, ignores, bool(found["slash"]), path)
    if name is not None:
        compiled.names.setdefault(name, []).append(pattern)
    else:
        compiled.extensions.setdefault(found["ext"], []).append(pattern)
        compiled.tails.add(found["ext"])


def _add_other(compiled: IgnoreFile, spelling: str, pattern: _Pattern) -> None:
    """Add it where names lead to it."""
    folders, _, name = spelling.removesuffix("/").rpartition("/")
    if _ANY_NAME.search(folders):
        name = "*"
    tail = _TAIL.match(name)
    if name and not _WILD.search(name):
        compiled.names.setdefault(name, []).append(pattern)
    elif tail is not None:
        compiled.extensions.setdefault(tail["ext"], []).append(pattern)
        compiled.tails.add(tail["tail"])
    else:
        compiled.others.append(pattern)
        if _STARS.match(name):
            compiled.whole_folders.add(_fixed_folder(f"{folders}/"))
        else:
            compiled.other_names.add(_name_regex(name))


def _fixed_folder(folders: str) -> str:
    """Return the folder that all paths are below that a pattern with these folders is about."""
    wild = _WILD.search(folders)
    fixed = folders if wild is None else folders[: wild.start()]
    return fixed[: fixed.rfind("/") + 1].removeprefix("/")


def _name_regex(pattern: str) -> str:
    """Return an expression that fits the names that a pattern fits, and maybe more.

    From the first set or escaped letter on it fits anything.
    """
    simple = re.split(r"[\[\\]", pattern, maxsplit=1)
    # `?` is a byte, and two of them may be one letter.
    regex = re.sub(r"(?:\\\*|\\\?)+", "[^\0]*", re.escape(simple[0]))
    return regex if len(simple) == 1 else f"{regex}[^\0]*"


@dataclass(frozen=True, slots=True)
class Placed:
    """An ignore file, and how paths below the root of a search become paths below its folder."""

    file: IgnoreFile
    cut: int = 0
    """Characters at the beginning of a path that lead to its folder."""
    above: str = ""
    """From its folder to the root, where it lies above the root."""

    def below(self, path: str) -> str:
        """Return the path below its folder of a path below the root."""
        return self.above + path[self.cut :]


IgnoreFiles: TypeAlias = tuple[Placed, ...]
"""The strongest first: the first that says something about a path decides."""


def decide(files: IgnoreFiles, path: str, name: str, *, is_folder: bool) -> bool | None:
    """Ask ignore files about a path below the root; None without a matching pattern."""
    for placed in files:
        said = placed.file.decide(placed.below(path), name, is_folder=is_folder)
        if said is not None:
            return said
    return None


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
    """Return the beginning of a file; empty if it cannot be read."""
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
        """Prepare; files are read with the first search."""
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
    """Return time, size and inode of a path."""
    try:
        found = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
