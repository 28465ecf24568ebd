"""The patterns of one ignore file, made fast for 100,000 names.

pathspec says what a pattern means. Plain names and `*.ext`, which most patterns are, are found in
tables; the others are first tried all at once.
Source: gitignore(5); docs/tools.md, "Host methods".
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

MAX_BYTES = 1024 * 1024
"""Of one ignore file; what comes after it is not read."""

MAX_PATTERNS = 10_000
"""Of one ignore file; the last ones count."""

Compile: TypeAlias = Callable[[str], tuple[bool, str] | None]
"""From a line to whether it ignores, and the regular expression of paths; None for a comment."""

_NAME = re.compile(
    r"(?P<anchor>/?)(?P<base>\*\.(?P<ext>[\w-]+)|\.?[\w-][\w.-]*)(?P<slash>/?)\Z", re.ASCII
)
"""A pattern that is decided by the name alone, and by whether it is in the file's own folder."""


@dataclass(frozen=True, slots=True)
class _Pattern:
    place: int
    """The last one that fits decides."""
    ignores: bool
    folders_only: bool = False
    here_only: bool = False
    """It is about names in the file's own folder."""


@dataclass(slots=True)
class IgnoreFile:
    """Patterns about paths below one folder."""

    names: dict[str, list[_Pattern]] = field(default_factory=dict)
    extensions: dict[str, list[_Pattern]] = field(default_factory=dict)
    others: list[tuple[re.Pattern[str], _Pattern]] = field(default_factory=list)
    """From the last one to the first."""
    any_other: re.Pattern[str] | None = None
    """Fits whatever one of the others fits."""

    def decide(self, path: str, name: str, *, is_folder: bool) -> bool | None:
        """Say whether it ignores a path below its folder; None if it says nothing about it."""
        best: _Pattern | None = None
        found = self.names.get(name)
        if self.extensions:
            # `*.ext` fits `a.b.ext`, and `.ext` too.
            dot = name.rfind(".")
            if dot >= 0 and (more := self.extensions.get(name[dot + 1 :])) is not None:
                found = more if found is None else [*found, *more]
        if found is not None:
            is_deeper = len(path) > len(name)
            for pattern in found:
                if not (
                    (pattern.folders_only and not is_folder) or (pattern.here_only and is_deeper)
                ):
                    best = pattern if best is None or pattern.place > best.place else best
        if self.any_other is not None:
            text = f"{path}/" if is_folder else path
            if self.any_other.search(text):
                for regex, pattern in self.others:
                    if best is not None and pattern.place < best.place:
                        break
                    if _fits(regex, text):
                        best = pattern
                        break
        return None if best is None else best.ignores


def _fits(regex: re.Pattern[str], text: str) -> bool:
    """Whether an expression of pathspec is about a path itself, and not a folder that it is in."""
    # `ps_d` is the slash behind a folder.
    return any(
        found.groupdict().get("ps_d") is None or found.end() == len(text)
        for found in regex.finditer(text)
    )


def compile_ignore_file(text: str, compile_line: Compile) -> IgnoreFile | None:
    """Read the lines of an ignore file; None if there is no pattern in it."""
    compiled = IgnoreFile()
    sources = []
    for place, line in enumerate(text.splitlines()[-MAX_PATTERNS:]):
        stripped = line.rstrip()
        ignores = not stripped.startswith("!")
        plain = _NAME.match(stripped.removeprefix("!"))
        if plain is not None:
            pattern = _Pattern(place, ignores, bool(plain["slash"]), bool(plain["anchor"]))
            if plain["ext"] is not None:
                compiled.extensions.setdefault(plain["ext"], []).append(pattern)
            else:
                compiled.names.setdefault(plain["base"], []).append(pattern)
        elif (found := compile_line(line)) is not None:
            ignores, source = found
            compiled.others.insert(0, (re.compile(source), _Pattern(place, ignores)))
            sources.append(re.sub(r"\?P<\w+>", "?:", source))
    if sources:
        compiled.any_other = re.compile("|".join(f"(?:{source})" for source in sources))
    is_empty = not (compiled.names or compiled.extensions or compiled.others)
    return None if is_empty else compiled


def with_pathspec() -> Compile:
    """Return the meaning of lines; imports pathspec."""
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

    def compile_line(line: str) -> tuple[bool, str] | None:
        try:
            pattern = GitIgnoreSpecPattern(line)
        except ValueError:
            # Git passes over what is no pattern.
            return None
        if pattern.include is None or pattern.regex is None:
            return None
        return pattern.include, pattern.regex.pattern

    return compile_line


@dataclass(frozen=True, slots=True)
class Placed:
    """An ignore file, and how paths below the root of a search become paths below its folder."""

    file: IgnoreFile
    cut: int = 0
    """Characters at the beginning of a path that lead to its folder."""
    above: str = ""
    """From its folder to the root, where it lies above the root."""


IgnoreFiles: TypeAlias = tuple[Placed, ...]
"""The strongest first: the first that says something about a path decides."""


def decide(files: IgnoreFiles, path: str, name: str, *, is_folder: bool) -> bool | None:
    """Ask ignore files about a path below the root; None if none says anything about it."""
    for placed in files:
        said = placed.file.decide(placed.above + path[placed.cut :], name, is_folder=is_folder)
        if said is not None:
            return said
    return None
