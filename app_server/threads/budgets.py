"""Budgets: what one request may take of each, and the door to those that threads share. No I/O.

Source: docs/usage.md, "Budgets".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Scope: TypeAlias = Literal["thread", "day", "folder", "home"]

TOKENS = "tokens"
"""The unit of budgets of tokens; that of others is a currency, in whole 10⁻¹⁵."""

MIN_OUTPUT_TOKENS = 256
"""Of a response; with less room than that a budget is used up."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a request takes of one limit: something for its input, and for each token of output."""

    scope: Scope
    name: str | None
    """The day or the folder."""
    unit: str
    limit: int
    fixed: int
    per_token: int

    def room(self, used: int) -> int | None:
        """Return how many tokens of output there is room for; None: as many as anybody wants."""
        left = self.limit - used - self.fixed
        if self.per_token:
            return left // self.per_token
        return None if left >= 0 else -1

    def amount(self, output_tokens: int) -> int:
        """Return what a request with so much output takes."""
        return self.fixed + self.per_token * output_tokens


@dataclass(frozen=True, slots=True)
class Refused:
    """A claim for which a budget has no room."""

    claim: Claim
    used: int
    """What was counted, and what requests under way may still take."""


def granted_output(claims: Sequence[tuple[Claim, int]], most: int) -> int | Refused:
    """Return how many tokens of output a request may have, up to `most`.

    Each claim comes with what is used of its limit.
    """
    granted = most
    for claim, used in claims:
        room = claim.room(used)
        if room is not None and room < MIN_OUTPUT_TOKENS:
            return Refused(claim, used)
        granted = granted if room is None else min(granted, room)
    return granted
