"""Whether commands may connect to a host: settings and rules first, then the user or the reviewer.

Source: docs/tools.md, "Network through a proxy".
"""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import anyio

from app_server.host.proxy.gate import REASONS, Refusal, refusal_of
from app_server.permissions.network import NetworkPolicy, NetworkRule, Target, verdict_on
from app_server.permissions.rules import NotLearned, RuleBook
from app_server.permissions.verdict import may_leave_sandbox
from app_server.runtime.pausable_timeouts import PausableTimeouts
from app_server.turns.approval.asking import (
    Decision,
    HookedTool,
    Question,
    RecordedAction,
    ThreadQuestions,
)
from app_server.turns.approval.commands import (
    MAX_REMEMBERED,
    MAX_SESSION_RULES,
    METHOD,
    CommandQuestion,
)
from app_server.turns.approval.reviewer import PlannedAction
from app_server.turns.commands import ThreadCommand
from app_server.turns.slot import TurnSlot
from protocol.log.rollout import LOCAL
from protocol.turns.approvals import (
    ApplyNetworkPolicyAmendmentDecision,
    CommandExecutionRequestApprovalParams,
    CommandExecutionRequestApprovalResponse,
    NetworkApprovalContext,
    NetworkPolicyAmendmentChoice,
)
from protocol.turns.auto_review import NetworkAccessGuardianApprovalReviewAction
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
    """None after it is settled: the asking call has gone, and others may ask."""


@dataclass(slots=True)
class NetworkApprovals:
    """The connections of one thread's commands; what was allowed for the session is kept here."""

    questions: ThreadQuestions
    rules: RuleBook
    slot: TurnSlot
    timeouts: PausableTimeouts
    """For how long commands are waited for; they stand still while the user is asked."""
    _remembered: dict[Target, None] = field(default_factory=dict, init=False)
    _learned: list[NetworkRule] = field(default_factory=list, init=False)
    """Rules that could not be written to the disk."""
    _pending: dict[Target, _Pending] = field(default_factory=dict, init=False)

    def of_command(
        self, policy: NetworkPolicy, turn_id: str, run: ThreadCommand
    ) -> "CommandConnections":
        """Return what decides about the connections of one command.

        The model reads of each host that is refused, once, in a note of the command.
        """
        return CommandConnections(self, policy, turn_id, run)

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
        state = self.questions.log.state
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
        is_allowed = False
        self.timeouts.pause()
        try:
            with self.questions.withdrawn_with(turn_id):
                with self.questions.open(self._question(turn_id, target)) as open_question:
                    decision = await open_question.decide()
                if decision.ends_turn:
                    self.slot.interrupt(turn_id)
                elif decision.is_allowed:
                    is_allowed = await self._keep(target, decision)
        finally:
            self.timeouts.resume()
        return is_allowed

    async def _keep(self, target: Target, decision: Decision) -> bool:
        """Keep an approval for longer than this once; False if the user chose a rule against it."""
        answer = decision.answer
        if not isinstance(answer, CommandExecutionRequestApprovalResponse):
            return True
        match answer.decision:
            case "acceptForSession":
                self._remembered[target] = None
                if len(self._remembered) > MAX_REMEMBERED:
                    del self._remembered[next(iter(self._remembered))]
            case ApplyNetworkPolicyAmendmentDecision() as chosen:
                amendment = chosen.apply_network_policy_amendment.network_policy_amendment
                return await self._apply(amendment, target)
        return True

    async def _apply(self, amendment: NetworkPolicyAmendment, target: Target) -> bool:
        """Write down what the user wants for good."""
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
            self.questions.warn(
                f"the rule is not written down: {exc}; it holds for this session only"
            )
            self._learned.append(rule)
            del self._learned[:-MAX_SESSION_RULES]
        return is_allowed

    def _question(self, turn_id: str, target: Target) -> Question:
        """Return the question; it is about no item of the thread, so it has an id of its own."""
        questions = self.questions
        words = (
            "network",
            LOCAL,
            target.protocol,
            target.host,
            str(target.port),
            questions.clock.new_id(),
        )
        item_id = "#".join(words)
        allow = NetworkPolicyAmendment(host=target.host, action="allow")
        deny = NetworkPolicyAmendment(host=target.host, action="deny")
        always = _applying(allow)
        reason = f"Network access to {target.host} requires approval"
        params = CommandExecutionRequestApprovalParams(
            thread_id=questions.log.id,
            turn_id=turn_id,
            item_id=item_id,
            started_at_ms=questions.clock.now_ms(),
            environment_id=LOCAL,
            reason=reason,
            network_approval_context=NetworkApprovalContext(
                host=target.host, protocol=target.protocol
            ),
            proposed_network_policy_amendments=[allow, deny],
            available_decisions=["accept", "acceptForSession", always, "cancel"],
        )
        planned = PlannedAction(
            turn_id=turn_id,
            target_item_id=item_id,
            action=NetworkAccessGuardianApprovalReviewAction(
                target=target.shown(), host=target.host, protocol=target.protocol, port=target.port
            ),
            evidence={
                "kind": "network",
                "target": target.shown(),
                "why_asked": "neither settings nor rules say anything of the host",
            },
        )
        hooked = HookedTool(
            name="Bash",
            input={"command": f"network-access {target.shown()}", "description": reason},
        )
        return CommandQuestion(
            action="network",
            turn_id=turn_id,
            item_id=item_id,
            subject=target.shown(),
            method=METHOD,
            params=params,
            planned=planned,
            hooked=hooked,
            rules=(always, _applying(deny)),
        )


@dataclass(slots=True)
class CommandConnections:
    """Decides about the connections of one command: the gate of its proxy."""

    approvals: NetworkApprovals
    policy: NetworkPolicy
    """Network policy of the settings."""
    turn_id: str
    run: ThreadCommand
    _written: dict[Target, set[Word]] = field(default_factory=dict, init=False)
    _accepted: set[Target] = field(default_factory=set, init=False)
    """Targets that were allowed this once: for this command."""

    async def decide(self, target: Target) -> Refusal | None:
        """Say whether a connection may be made, None if it may; asks if nothing else decides.

        Raises:
            OSError: the decision cannot be written down; it must not be made then.
        """
        verdict = verdict_on(target, self.policy, await self.approvals.known())
        if verdict == "ask" and target in self._accepted:
            return None
        if verdict == "ask" and self.approvals.is_remembered(target):
            verdict = "allow"
        if verdict == "ask" and self._may_be_asked(target):
            if await self.approvals.ask(target):
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
            self.run.note(f"Network access to {target.shown()} was refused: {REASONS[why]}")
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
            action = RecordedAction(
                action="network",
                turn_id=self.turn_id,
                item_id=self.run.item.id,
                subject=target.shown(),
            )
            await self.approvals.questions.record(
                action, Decision(is_allowed=word == "accept", by="policy", word=word)
            )


def _applying(amendment: NetworkPolicyAmendment) -> ApplyNetworkPolicyAmendmentDecision:
    choice = NetworkPolicyAmendmentChoice(network_policy_amendment=amendment)
    return ApplyNetworkPolicyAmendmentDecision(apply_network_policy_amendment=choice)
