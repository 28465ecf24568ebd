"""Rules about commands by the words that they begin with, and what several of them say together.

Source: docs/tools.md, "Approvals and rules".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

RuleDecision: TypeAlias = Literal["allow", "prompt", "forbidden"]

_STRICTNESS: tuple[RuleDecision, ...] = ("allow", "prompt", "forbidden")


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


@dataclass(frozen=True, slots=True)
class Rules:
    """All rules that hold for a thread."""

    prefixes: tuple[PrefixRule, ...] = ()

    def of(self, words: Sequence[str]) -> PrefixRule | None:
        """Return the strictest rule for a command; None if there is none for it."""
        matching = [rule for rule in self.prefixes if rule.matches(words)]
        return max(matching, key=lambda rule: _STRICTNESS.index(rule.decision), default=None)
