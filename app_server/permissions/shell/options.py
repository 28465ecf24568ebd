"""Separate the options of a program from its operands. No I/O."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeAlias

from app_server.permissions.shell.script import Word

_Kind: TypeAlias = Literal["", "=", "?", "+"]
"""Value after an option: none; in the same word or the next; in the same word, and may be left
out; in the next word."""

_KINDS: Mapping[str, _Kind] = {"=": "=", "?": "?", "+": "+"}
_NUMBER = re.compile(r"-\d+")


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a program, sorted out."""

    operands: tuple[str, ...]
    """Arguments that are no options, in their order."""
    options: tuple[tuple[str, str | None], ...]
    """Each option with its value; None where it has none, or has it in the next word which this
    table does not know of.
    """

    def value_of(self, *names: str) -> str | None:
        """Return the value of the first of these options that is there."""
        return next((value for name, value in self.options if name in names), None)

    def has(self, *names: str) -> bool:
        """Whether any of these options is there."""
        return any(name in names for name, _ in self.options)


def option_names(names: str) -> frozenset[str]:
    """Return names that are written with spaces between them."""
    return frozenset(names.split())


def sort_out(words: Sequence[str], valued: Collection[str] = ()) -> Arguments:
    """Sort the words after the name of a program; `valued` are options whose value may follow.

    A cluster of letters ends with the first that has a value: `-nC3` is `-n` and `-C` with `3`.
    """
    operands: list[str] = []
    options: list[tuple[str, str | None]] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            operands += rest
            break
        if not word.startswith("-") or word == "-":
            operands.append(word)
        elif word.startswith("--"):
            name, equals, value = word.partition("=")
            follows = not equals and name in valued and bool(rest)
            options.append((name, value if equals else rest.pop(0) if follows else None))
        else:
            options += _cluster(word, rest, valued)
    return Arguments(tuple(operands), tuple(options))


def _cluster(word: str, rest: list[str], valued: Collection[str]) -> list[tuple[str, str | None]]:
    found: list[tuple[str, str | None]] = []
    for at, letter in enumerate(word[1:], start=1):
        name = f"-{letter}"
        if name in valued:
            value = word[at + 1 :] or (rest.pop(0) if rest else None)
            return [*found, (name, value)]
        found.append((name, None))
    return found


@dataclass(frozen=True, slots=True)
class KnownOptions:
    """Known options of a program, each with the arguments that it takes."""

    letters: Mapping[str, _Kind]
    names: Mapping[str, _Kind]
    """With their two dashes."""
    takes_numbers: bool = False
    """Whether a number with a dash before it is an option."""


@cache
def known_options(table: str) -> KnownOptions:
    """Read a table of options: words with spaces between them.

    `-ab` is two letters, `-k=` one with a value, `-w?` one whose value may be left out, `-L+` one
    whose value is the next word; so are names, `--width=`. `-#` is any number.
    """
    letters: dict[str, _Kind] = {}
    names: dict[str, _Kind] = {}
    for word in table.split():
        kind = _KINDS.get(word[-1], "")
        name = word.removesuffix(kind)
        if name.startswith("--"):
            names[name] = kind
        elif name != "-#":
            letters.update(dict.fromkeys(name[1:], kind))
    return KnownOptions(letters, names, "-#" in table.split())


def known_operands(
    words: Sequence[Word], known: KnownOptions, *, strict: bool = True
) -> list[Word] | None:
    """Return the operands of a program; None with an unknown option, or if it is unclear.

    A shortened name is not known. If `strict`, a pattern must not become an option, and a value of
    its own does not begin with a dash: whatever a word is for the program, it is a known option if
    it looks like one. A pattern that is a value is an operand too, since it may become more words.
    """
    operands: list[Word] = []
    wants_value = False
    for at, word in enumerate(words):
        is_dashed = word.text.startswith("-") and word.text != "-"
        if strict and word.may_be_many and word.may_be_option and not is_dashed:
            return None
        if wants_value:
            if strict and is_dashed and not _NUMBER.fullmatch(word.text):
                return None
            wants_value = False
            if word.may_be_many:
                operands.append(word)
        elif word.text == "--":
            return operands + list(words[at + 1 :])
        elif is_dashed:
            kind = _kind_of(word.text, known)
            if kind is None:
                return None
            wants_value = kind == "+"
        else:
            operands.append(word)
    return None if wants_value else operands


def _kind_of(word: str, known: KnownOptions) -> Literal["", "+"] | None:
    """Return `+` if the value of a word's option is the next one; None if any is not known."""
    if word.startswith("--"):
        name, equals, _ = word.partition("=")
        match known.names.get(name):
            case None:
                return None
            case "" | "+" if equals:
                return None
            case "=" | "+":
                return "" if equals else "+"
        return ""
    if known.takes_numbers and _NUMBER.fullmatch(word):
        return ""
    for at, letter in enumerate(word[1:], start=2):
        match known.letters.get(letter):
            case None:
                return None
            case "?":
                return ""
            case "=":
                return "" if word[at:] else "+"
            case "+":
                return None if word[at:] else "+"
    return ""
