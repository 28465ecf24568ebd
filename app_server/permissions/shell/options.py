"""Telling the options of a program from what it works on. No I/O."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a program, sorted out."""

    operands: tuple[str, ...]
    """What is no option, in its order."""
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
