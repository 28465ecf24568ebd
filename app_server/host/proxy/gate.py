"""The port that decides about the proxy's connections; packages above implement it.

Source: docs/tools.md, "Network through a proxy".
"""

from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from app_server.permissions.network import NetworkPolicy, Target, Verdict, verdict_on
from app_server.permissions.rules import RuleBook

Refusal: TypeAlias = Literal["denied", "not_allowed", "not_allowed_local", "method_not_allowed"]
"""Why a connection is refused, in the words of Codex."""

REASONS: dict[Refusal, str] = {
    "denied": "the host is denied by a rule or by the settings",
    "not_allowed": "nobody allowed the host",
    "not_allowed_local": "this machine and private networks are not reached",
    "method_not_allowed": "the network is limited to reading over plain HTTP",
}
"""For people."""


class Gate(Protocol):
    """Decides about the connections of one command."""

    @property
    def policy(self) -> NetworkPolicy:
        """The network policy of the settings."""

    async def decide(self, target: Target) -> Refusal | None:
        """Return why a connection is refused, None if it may be made; may ask the user first."""

    async def refused(self, target: Target, why: Refusal) -> None:
        """Record a connection that was refused after `decide` had allowed it."""


class Refused(Exception):
    """A connection that must not be made."""

    def __init__(self, why: Refusal) -> None:
        super().__init__(REASONS[why])
        self.why = why


@dataclass(frozen=True, slots=True)
class UnaskedGate:
    """Gate by settings and rules alone: hosts without a rule are refused."""

    policy: NetworkPolicy
    rules: RuleBook

    async def decide(self, target: Target) -> Refusal | None:
        """Say whether a connection may be made; see Gate."""
        rules = await self.rules.current()
        return refusal_of(verdict_on(target, self.policy, rules.networks))

    async def refused(self, target: Target, why: Refusal) -> None:
        """Ignore it: there is no user to notify."""


def refusal_of(verdict: Verdict) -> Refusal | None:
    """Return the refusal of a verdict where there is no user to ask; None if it is allowed."""
    if verdict == "allow":
        return None
    return "not_allowed" if verdict == "ask" else verdict
