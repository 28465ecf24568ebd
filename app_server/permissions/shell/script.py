"""A shell script as values: the commands in it, or that it was not understood. No I/O.

Below them stand words as clients are shown them: with quotes where a shell needs them, for display
alone. A word is cut into stretches, each as long as one kind of quotes can hold. It is what clients
of the reference see.
Source: docs/tools.md, "Approvals and rules", "Commands".
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

MAX_SCRIPT_BYTES = 65_536
"""Of UTF-8; what is longer is not read."""

MAX_COMMANDS = 500
"""Wherever they stand; a script that mentions more is not read."""

_TILDE = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_]*(?:\[.*\])?\+?=(?:.*:)?)?~", re.DOTALL)
"""At the start of a word, or where a value or a part of one begins in a word like an assignment.
Source: https://www.gnu.org/software/bash/manual/html_node/Tilde-Expansion.html
"""


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a command, with its quotes taken away."""

    text: str
    is_literal: bool = True
    """Whether the program gets this very text, but for patterns of file names and home folders in
    the place of `~`; not if the shell puts something else in its place.
    """
    is_pattern: bool = False
    """Whether it is a pattern of file names, so that the program may get any number of words, also
    none.
    """
    is_zsh_pattern: bool = False
    """Whether zsh takes it for one, with options that a profile may set (`EXTENDED_GLOB`,
    `BRACE_CCL`).
    """

    @property
    def may_have_home(self) -> bool:
        """Whether bash may put a home folder in the place of a `~`; quotes are not looked at."""
        return _TILDE.match(self.text) is not None

    @property
    def may_be_many(self) -> bool:
        """Whether the program may get any number of words for it."""
        return self.is_pattern or self.is_zsh_pattern

    @property
    def may_be_option(self) -> bool:
        """Whether the program may get a word that begins with `-` for it."""
        if self.text.startswith("-") or (self.is_pattern and self.text[:1] in "*?["):
            return True
        return self.is_zsh_pattern and (self.text[:1] in "^{" or "#" in self.text)


@dataclass(frozen=True, slots=True)
class Command:
    """A program with its arguments, as the script names them."""

    words: tuple[Word, ...]
    """At least one."""
    source: str
    """Its part of the script, without what is redirected."""
    inner: tuple["Command", ...] = ()
    """All commands in substitutions among its words, at any depth; they have none themselves. Only
    what is `mentioned` has them.
    """

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of the words."""
        return tuple(word.text for word in self.words)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Commands whose output goes to the next one."""

    commands: tuple[Command, ...]


@dataclass(frozen=True, slots=True)
class Script:
    """A script that a shell is to run."""

    text: str
    pipelines: tuple[Pipeline, ...] | None
    """One after the other, joined by `;`, `&&`, `||` or line ends. None: not understood, since
    there is anything but words and these: redirections, substitutions, variables, assignments,
    control flow, jobs in the background; or a mistake.
    """
    mentioned: tuple[Pipeline, ...] = ()
    """Every pipeline and command, also inside of others and of what was not understood; a
    pipeline with all commands that are anywhere in it.
    """
    writes: tuple[str, ...] = ()
    """Targets of output redirections."""
    forks: bool = False
    """Whether a function begins itself again beside itself, without an end."""
    is_read: bool = True
    """False if it cannot be looked at: too long, too much, too deep, or there is no grammar."""
    nested: tuple["Script", ...] = ()
    """The scripts that it has other shells run, at any depth; they have none themselves."""

    @property
    def is_understood(self) -> bool:
        """Whether `pipelines` is all that the script does."""
        return self.pipelines is not None

    @property
    def commands(self) -> Iterator[Command]:
        """The commands of a script that was understood, in their order; else none."""
        for pipeline in self.pipelines or ():
            yield from pipeline.commands


_Kind: TypeAlias = Literal["plain", "single", "double"]

_KINDS: tuple[_Kind, ...] = ("plain", "single", "double")
"""The first that holds a stretch is taken."""

_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-./:@]_")
_NOT_IN_SINGLE = frozenset("'\\^")
_NOT_IN_DOUBLE = frozenset("`$!^")


def shown(words: Iterable[str]) -> str:
    """Write words as a shell would read them."""
    return " ".join(map(quoted, words))


def quoted(word: str) -> str:
    """Write one word as a shell would read it."""
    return "".join(_written(text, kind) for text, kind in _stretches(word)) or "''"


def _stretches(word: str) -> Iterator[tuple[str, _Kind]]:
    start = 0
    while start < len(word):
        end = start
        kinds: tuple[_Kind, ...] = _KINDS
        while end < len(word):
            left = tuple(kind for kind in kinds if _holds(kind, word[end], is_first=end == start))
            if not left:
                break
            kinds, end = left, end + 1
        yield word[start:end], kinds[0]
        start = end


def _holds(kind: _Kind, char: str, *, is_first: bool) -> bool:
    match kind:
        case "plain":
            return char in _PLAIN
        case "single":
            return char not in _NOT_IN_SINGLE or (char == "^" and is_first)
        case "double":
            return char not in _NOT_IN_DOUBLE


def _written(text: str, kind: _Kind) -> str:
    match kind:
        case "plain":
            return text
        case "single":
            return f"'{text}'"
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
