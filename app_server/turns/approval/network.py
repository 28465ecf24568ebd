"""Whether commands may connect to a host: settings and rules first, then the user or the reviewer.

Source: docs/tools.md, "Network through a proxy".
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import anyio

from app_server.host.proxy.gate import REASONS, Refusal, refusal_of
from app_server.permissions.decision import may_leave_sandbox
from app_server.permissions.network.policy import NetworkPolicy, NetworkRule, verdict_on
from app_server.permissions.network.target import Target
from app_server.permissions.rules.book import NotLearned, RuleBook
from app_server.runtime.pausable_timeouts import PausableTimeouts
from app_server.turns.approval.asking import ApprovalCancelled, Asker, Denied, Question
from app_server.turns.approval.commands import MAX_REMEMBERED, MAX_SESSION_RULES, check_decision
from app_server.turns.approval.decisions import Asked
from app_server.turns.approval.network_question import network_question
from protocol.turns.approvals import (
    ApplyNetworkPolicyAmendmentDecision,
    CommandExecutionRequestApprovalResponse,
)
from protocol.turns.policy import NetworkPolicyAmendment

MAX_TARGETS = 256
"""Of one command whose decisions are written down, each once, and that are not asked about again
after a refusal. Further ones are decided in the same way, and refused where somebody would have to
be asked."""

Word: TypeAlias = Literal["accept", "decline"]


@dataclass(slots=True)
class _Pending:
    """A question that connections to one target wait for."""

    settled: anyio.Event = field(default_factory=anyio.Event)
    is_allowed: bool | None = None
    """None after it is settled: whoever asked has gone, and others may ask."""


@dataclass(slots=True)
class NetworkGate:
    """The connections of one thread's commands; what was allowed for the session is kept here."""

    asker: Asker
    rules: RuleBook
    interrupt: Callable[[str], None]
    """Ends the running turn, by its id, as interrupted."""
    timeouts: PausableTimeouts
    """For how long commands are waited for; they stand still while the user is asked."""
    _remembered: dict[Target, None] = field(default_factory=dict, init=False)
    _learned: list[NetworkRule] = field(default_factory=list, init=False)
    """What could not be written down."""
    _pending: dict[Target, _Pending] = field(default_factory=dict, init=False)

    def of_command(
        self, policy: NetworkPolicy, turn_id: str, item_id: str, note: Callable[[str], None]
    ) -> "CommandConnections":
        """Return what decides about the connections of one command, whose item is named.

        `note` is called with a text for the model for each host that is refused, once.
        """
        return CommandConnections(self, policy, turn_id, item_id, note)

    async def known(self) -> tuple[NetworkRule, ...]:
        """Return the rules that hold now."""
        return (*(await self.rules.current()).networks, *self._learned)

    def is_remembered(self, target: Target) -> bool:
        """Whether it was allowed for the session."""
        return target in self._remembered

    async def ask(self, target: Target) -> bool:
        """Ask whether a target may be connected to; connections that ask at once share a question.

        False where policy forbids the question, or no turn runs that it could belong to. Cancelling
        withdraws it, unless others wait for it too: then they ask.

        Raises:
            OSError: the answer cannot be written down.
        """
        while (pending := self._pending.get(target)) is not None:
            await pending.settled.wait()
            if pending.is_allowed is not None:
                return pending.is_allowed
        state = self.asker.thread.state
        if state.open_turn is None or not may_leave_sandbox(state.in_force.approval_policy):
            return False
        pending = self._pending[target] = _Pending()
        try:
            pending.is_allowed = await self._ask(target, state.open_turn.id)
        finally:
            del self._pending[target]
            pending.settled.set()
        return pending.is_allowed

    async def _ask(self, target: Target, turn_id: str) -> bool:
        question = network_question(self.asker, turn_id, target)
        with self.asker.open.asked_in(turn_id):
            self.timeouts.pause()
            try:
                return await self._put(target, question)
            except ApprovalCancelled:
                self.interrupt(turn_id)
            except Denied:
                pass
            finally:
                self.timeouts.resume()
        return False

    async def _put(self, target: Target, question: Question) -> bool:
        kind = CommandExecutionRequestApprovalResponse
        answer = await self.asker.allow(question, kind, _check)
        match None if answer is None else answer.decision:
            case "acceptForSession":
                self._remembered[target] = None
                if len(self._remembered) > MAX_REMEMBERED:
                    del self._remembered[next(iter(self._remembered))]
            case ApplyNetworkPolicyAmendmentDecision() as chosen:
                amendment = chosen.apply_network_policy_amendment.network_policy_amendment
                return await self._apply(amendment, target)
        return True

    async def _apply(self, amendment: NetworkPolicyAmendment, target: Target) -> bool:
        """Write down what the user wants for good; it has to be about the host that was asked."""
        if amendment.host != target.host:
            self.asker.warn(
                f"the rule for `{amendment.host}` is not applied: asked was `{target.host}`"
            )
            return False
        is_allowed = amendment.action == "allow"
        does = "Allow" if is_allowed else "Deny"
        rule = NetworkRule(
            target.host,
            target.protocol,
            "allow" if is_allowed else "forbidden",
            f"{does} {target.protocol} access to {target.host}",
        )
        try:
            await self.rules.learn_network(rule)
        except NotLearned as exc:
            self.asker.warn(f"the rule is not written down: {exc}; it holds for this session only")
            self._learned.append(rule)
            del self._learned[:-MAX_SESSION_RULES]
        return is_allowed


@dataclass(slots=True)
class CommandConnections:
    """Decides about the connections of one command: the gate of its proxy."""

    gate: NetworkGate
    policy: NetworkPolicy
    """What settings say."""
    turn_id: str
    item_id: str
    note: Callable[[str], None]
    _written: dict[Target, set[Word]] = field(default_factory=dict, init=False)
    _accepted: set[Target] = field(default_factory=set, init=False)
    """What somebody allowed this once: for this command."""

    async def decide(self, target: Target) -> Refusal | None:
        """Say whether a connection may be made, None if it may; asks if nothing else decides.

        Raises:
            OSError: the decision cannot be written down; it must not be made then.
        """
        verdict = verdict_on(target, self.policy, await self.gate.known())
        if verdict == "ask" and target in self._accepted:
            return None
        if verdict == "ask" and self.gate.is_remembered(target):
            verdict = "allow"
        if verdict == "ask" and self._may_be_asked(target):
            if await self.gate.ask(target):
                self._accepted.add(target)
                return None
            verdict = "not_allowed"
        why = refusal_of(verdict)
        if why is None:
            await self._write(target, "accept")
        else:
            await self.refused(target, why)
        return why

    async def refused(self, target: Target, why: Refusal) -> None:
        """Write a refusal down, and note it for the model, once for each target."""
        if "decline" not in self._written.get(target, ()):
            self.note(f"Network access to {target.shown()} was refused: {REASONS[why]}")
        await self._write(target, "decline")

    def _may_be_asked(self, target: Target) -> bool:
        if len(self._written) + len(self._accepted) >= MAX_TARGETS:
            return False
        # What was refused is not asked about again and again.
        return "decline" not in self._written.get(target, ())

    async def _write(self, target: Target, word: Word) -> None:
        if target not in self._written and len(self._written) >= MAX_TARGETS:
            return
        said = self._written.setdefault(target, set())
        if word not in said:
            said.add(word)
            decided = Asked(
                action="network",
                turn_id=self.turn_id,
                item_id=self.item_id,
                subject=target.shown(),
            )
            await self.gate.asker.decisions.write(decided, word, "policy")


def _check(answer: CommandExecutionRequestApprovalResponse) -> None:
    check_decision(answer, ApplyNetworkPolicyAmendmentDecision)
