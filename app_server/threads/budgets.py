"""Budgets: what one request may take of each, and the door to those that threads share. No I/O.

Source: docs/usage.md, "Budgets".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

Scope: TypeAlias = Literal["thread", "day", "folder", "home"]

TOKENS = "tokens"
"""The unit of budgets of tokens; that of others is a currency, in whole 10⁻¹⁵."""

Key: TypeAlias = tuple[str, str, str]
"""Scope, name and unit of a limit."""

MIN_OUTPUT_TOKENS = 256
"""Of a response; with less room than that a budget is used up."""


@dataclass(frozen=True, slots=True)
class BudgetClaim:
    """Claim of a request on one limit: a part for its input, and one for each token of output."""

    scope: Scope
    name: str | None
    """The day or the folder."""
    unit: str
    limit: int
    fixed: int
    per_token: int

    @property
    def key(self) -> "Key":
        """Key of the limit, the same for all claims on it."""
        return self.scope, self.name or "", self.unit

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
class ClaimRefused:
    """A claim for which a budget has no room."""

    claim: BudgetClaim
    used: int
    """Counted so far, with what requests under way have reserved."""


def granted_output(claims: Sequence[tuple[BudgetClaim, int]], most: int) -> int | ClaimRefused:
    """Return how many tokens of output a request may have, up to `most`.

    Each claim comes with what is used of its limit.
    """
    granted = most
    for claim, used in claims:
        room = claim.room(used)
        if room is not None and room < MIN_OUTPUT_TOKENS:
            return ClaimRefused(claim, used)
        granted = granted if room is None else min(granted, room)
    return granted


# Budgets that threads share.

STEP = 10**6
"""Money is kept in whole 10⁻⁹ of a currency, rounded up, so that sums fit into 64 bits."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Claims on limits of which the store does not know yet how far they are used."""

    claims: Sequence[BudgetClaim]


class BudgetsFailed(OSError):
    """How far budgets are used cannot be known; the text says why."""


class SharedBudgets(Protocol):
    """How far the budgets are used that all threads of a home or a database share.

    Its servers share them too: what one reserves the others count. What is reserved and never
    settled, as its server was killed, stays counted: nobody knows what a model has used of it.
    Every method raises OSError where the store cannot be read or written.
    """

    async def reserve(
        self, request_id: str, claims: Sequence[BudgetClaim], most: int
    ) -> int | ClaimRefused | Unknown:
        """Reserve what a request may take of each limit, or nothing.

        Returns how many tokens its output may have, up to `most`.
        """

    async def seed(self, amounts: Sequence[tuple[BudgetClaim, int]]) -> None:
        """Note how far limits are used at least, as the ledger has it."""

    async def settle(
        self, request_id: str, amounts: Sequence[tuple[BudgetClaim, int]]
    ) -> Sequence[tuple[int, int]]:
        """Put what a request has used in the place of what it has reserved.

        Returns what was used of each limit before and afterwards, without what is reserved.
        """


def stored(unit: str, amount: int) -> int:
    """Return an amount as stores keep it."""
    return amount if unit == TOKENS else -(-amount // STEP)


def from_store(unit: str, amount: int) -> int:
    """Return an amount that a store has kept."""
    return amount if unit == TOKENS else amount * STEP


def decide(
    claims: Sequence[BudgetClaim], used: Mapping[Key, int], most: int
) -> int | ClaimRefused | Unknown:
    """Decide about claims by what a store has counted and reserved, as it keeps it."""
    if unknown := [claim for claim in claims if claim.key not in used]:
        return Unknown(unknown)
    counted = [(claim, from_store(claim.unit, used[claim.key])) for claim in claims]
    return granted_output(counted, most)
