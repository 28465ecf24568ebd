"""Rules about commands by the words that they begin with, and which of them holds. No I/O.

Source: docs/tools.md, "Approvals and rules".
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal, TypeAlias

RuleDecision: TypeAlias = Literal["allow", "prompt", "forbidden"]

_STRICTNESS: tuple[RuleDecision, ...] = ("allow", "prompt", "forbidden")

_SYSTEM_FOLDERS = ("/bin", "/usr/bin")


@dataclass(frozen=True, slots=True)
class PrefixRule:
    """What becomes of commands that begin with certain words."""

    pattern: tuple[tuple[str, ...], ...]
    """For each word the texts that it may have; neither is empty."""
    decision: RuleDecision = "allow"
    justification: str | None = None
    """Why; users and models are told."""

    def matches(self, words: Sequence[str]) -> bool:
        """Whether a command begins with the pattern."""
        if len(words) < len(self.pattern):
            return False
        return all(word in texts for word, texts in zip(words, self.pattern, strict=False))

    def shown(self) -> str:
        """Return the words, with all texts of each."""
        return " ".join("|".join(texts) for texts in self.pattern)


@dataclass(frozen=True, slots=True)
class Rules:
    """All rules that hold for a thread."""

    prefixes: tuple[PrefixRule, ...] = ()

    def of(self, words: Sequence[str]) -> PrefixRule | None:
        """Return the strictest rule for a command; None if there is none for it.

        A program of the system is known by its name too: `/usr/bin/git` is `git`.
        """
        return strictest(rule for rule in self.prefixes if _matches(rule, words))


def strictest(rules: Iterable[PrefixRule]) -> PrefixRule | None:
    """Return the strictest of some rules, the first of equals; None if there are none."""
    return max(rules, key=lambda rule: _STRICTNESS.index(rule.decision), default=None)


def _matches(rule: PrefixRule, words: Sequence[str]) -> bool:
    if rule.matches(words):
        return True
    program = PurePosixPath(words[0])
    if str(program.parent) not in _SYSTEM_FOLDERS:
        return False
    return rule.matches([program.name, *words[1:]])
