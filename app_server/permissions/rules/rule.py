"""Rules about commands by the words that they begin with, and which of them holds. No I/O.

Rules about hosts are kept beside them, as the same files have both.

Source: docs/tools.md, "Approvals and rules".
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal, TypeAlias

from app_server.permissions.network.policy import NetworkRule

RuleDecision: TypeAlias = Literal["allow", "prompt", "forbidden"]

_STRICTNESS: tuple[RuleDecision, ...] = ("allow", "prompt", "forbidden")

_SYSTEM_FOLDERS = ("/bin", "/usr/bin")


@dataclass(frozen=True, slots=True)
class PrefixRule:
    """Decision on commands that begin with certain words."""

    pattern: tuple[tuple[str, ...], ...]
    """For each word the texts that it may have; neither is empty."""
    decision: RuleDecision = "allow"
    justification: str | None = None
    """Why; shown to users and models."""

    def matches(self, words: Sequence[str]) -> bool:
        """Whether a command begins with the pattern."""
        if len(words) < len(self.pattern):
            return False
        return all(word in texts for word, texts in zip(words, self.pattern, strict=False))

    def shown(self) -> str:
        """Return the words, with all texts of each."""
        return " ".join("|".join(texts) for texts in self.pattern)


@dataclass(frozen=True, slots=True)
class HostExecutable:
    """Paths at which a program counts as the one that rules name."""

    name: str
    paths: tuple[str, ...]
    """Absolute; none: it counts nowhere."""


@dataclass(frozen=True, slots=True)
class Rules:
    """All rules that hold for a thread."""

    prefixes: tuple[PrefixRule, ...] = ()
    networks: tuple[NetworkRule, ...] = ()
    executables: tuple[HostExecutable, ...] = ()
    """Of several for one name the last counts."""

    def of(self, words: Sequence[str]) -> PrefixRule | None:
        """Return the strictest rule for a command; None if there is none for it.

        A program that is named by its path is known by its name too. Wherever it is, rules forbid
        it or want somebody to be asked; they allow it where `host_executable` says that it is, or
        if nothing does, in the folders of the system: `/usr/bin/git` is `git`.
        """
        return strictest(rule for rule in self.prefixes if self._matches(rule, words))

    def joined(self, other: "Rules") -> "Rules":
        """Return both; the other's come last."""
        return Rules(
            (*self.prefixes, *other.prefixes),
            (*self.networks, *other.networks),
            (*self.executables, *other.executables),
        )

    @property
    def count(self) -> int:
        """Number of rules, of all kinds."""
        return len(self.prefixes) + len(self.networks) + len(self.executables)

    def _matches(self, rule: PrefixRule, words: Sequence[str]) -> bool:
        if rule.matches(words):
            return True
        program = PurePosixPath(words[0])
        if not program.is_absolute():
            return False
        if rule.decision == "allow" and not self._is_where_it_should(program):
            return False
        return rule.matches([program.name, *words[1:]])

    def _is_where_it_should(self, program: PurePosixPath) -> bool:
        said = [one.paths for one in self.executables if one.name == program.name]
        return str(program) in said[-1] if said else str(program.parent) in _SYSTEM_FOLDERS


def strictest(rules: Iterable[PrefixRule]) -> PrefixRule | None:
    """Return the strictest of some rules, the first of equals; None if there are none."""
    return max(rules, key=lambda rule: _STRICTNESS.index(rule.decision), default=None)
