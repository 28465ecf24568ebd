"""Puts a question about an action to the user or the reviewer, and writes down what became of it.

Source: docs/tools.md, "Approvals and rules".
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import anyio

from app_server.runtime.clock import Clock
from app_server.threads.log.live import LiveThread
from app_server.turns.approval.approvals import Denied
from app_server.turns.approval.decisions import Action, Decisions
from app_server.turns.hooks import ThreadHooks
from app_server.turns.ports import ClientPort
from app_server.turns.review.reviewer import ApprovalRefused, PlannedAction, Reviewer
from protocol.approvals import (
    AcceptWithExecpolicyAmendmentDecision,
    ApplyNetworkPolicyAmendmentDecision,
)
from protocol.items import GuardianApprovalReviewAction
from protocol.model import JsonObject, WireModel

NO_ANSWER = "approval request failed"

Waiting: TypeAlias = Callable[[], AbstractContextManager[None]]
OnDenied: TypeAlias = Callable[[], Awaitable[None]]
Answer = TypeVar("Answer", bound=WireModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """An action that somebody has to allow."""

    action: Action
    turn_id: str
    item_id: str
    subject: str
    """What it is, in a line."""
    method: str
    params: WireModel
    reviewed: GuardianApprovalReviewAction
    """The action, as clients are shown it when the reviewer decides."""
    evidence: JsonObject
    """The action, as the reviewer is shown it."""
    tool_name: str
    """What hooks know the tool as."""
    tool_input: JsonObject
    """The action, as hooks are given it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """The questions of one thread."""

    thread: LiveThread
    clients: ClientPort
    reviewer: Reviewer
    clock: Clock
    decisions: Decisions
    waiting: Waiting
    """Shows in the thread's status that the user is asked."""
    timeout_s: float | None = None
    """For the user's answer; None waits without limit."""
    hooks: ThreadHooks | None = None
    """Are asked before anybody else."""

    @property
    def asks_hooks(self) -> bool:
        """Whether there are hooks that decide before anybody else."""
        return self.hooks is not None and self.hooks.listens("PermissionRequest")

    @property
    def is_reviewed(self) -> bool:
        """Whether the reviewer decides instead of the user."""
        return self.thread.state.in_force.approvals_reviewer != "user"

    async def is_allowed_by_hook(self, question: Question, on_denied: OnDenied) -> bool:
        """Ask the hooks; True if one allows the action, so that nobody else need be asked.

        `on_denied` is called before a refusal is raised. Cancelling ends the hooks.

        Raises:
            Denied: a hook refused; the text is its reason.
        """
        if self.hooks is None or not self.asks_hooks:
            return False
        outcome = await self.hooks.fire(
            "PermissionRequest",
            question.turn_id,
            question.tool_name,
            question.item_id,
            tool_name=question.tool_name,
            tool_input=question.tool_input,
        )
        if outcome.blocked is not None:
            await self.decisions.write(question, "decline", "hook")
            await on_denied()
            raise Denied(outcome.blocked)
        if outcome.allows:
            await self.decisions.write(question, "accept", "hook")
        return outcome.allows

    async def review(self, question: Question, on_denied: OnDenied) -> None:
        """Ask the reviewer; returns when the action may be done, this once.

        `on_denied` is called before a refusal is raised. Cancelling aborts the review.

        Raises:
            Denied: the reviewer refused, or came to no verdict.
        """
        planned = PlannedAction(
            turn_id=question.turn_id,
            target_item_id=question.item_id,
            action=question.reviewed,
            evidence=question.evidence,
        )
        try:
            await self.reviewer.review(planned)
        except ApprovalRefused as exc:
            await self.decisions.write(question, "decline", "reviewer")
            await on_denied()
            raise Denied(str(exc)) from exc
        except BaseException:
            await self.decisions.write_withdrawn(question)
            raise
        await self.decisions.write(question, "accept", "reviewer")

    async def ask(
        self,
        question: Question,
        kind: type[Answer],
        check: Callable[[Answer], None],
        on_denied: OnDenied,
        announce: Callable[[], None] | None = None,
    ) -> Answer:
        """Ask the user, and return the answer, which `check` did not refuse.

        `announce` is called once the thread's status shows that the user is asked. `check` raises
        Denied for an answer that does not allow the action. `on_denied` is called before that comes
        out, while the status is still that. Cancelling withdraws the question: clients hear that it
        is settled.

        Raises:
            Denied: the user refused, nobody answered in time, or the answer made no sense.
        """
        with self.waiting():
            if announce is not None:
                announce()
            try:
                answer = await self._answer(question, kind)
                check(answer)
            except Denied:
                await on_denied()
                raise
        return answer

    async def _answer(self, question: Question, kind: type[Answer]) -> Answer:
        try:
            with anyio.fail_after(self.timeout_s):
                answer, client = await self.clients.ask_by_name(
                    self.thread.id, question.method, question.params
                )
        except TimeoutError as exc:
            await self.decisions.write(question, "expired", "server")
            raise Denied(f"nobody answered within {self.timeout_s:g} s") from exc
        except BaseException:
            await self.decisions.write_withdrawn(question)
            raise
        if not isinstance(answer, kind):
            await self.decisions.write(question, "failed", "user", client)
            raise Denied(NO_ANSWER)
        await self.decisions.write(question, _word(answer), "user", client, _rule(answer))
        return answer


def _word(answer: WireModel) -> str:
    """Return the decision in one word, as the wire has it."""
    decision = getattr(answer, "decision", "accept")
    if isinstance(decision, WireModel):
        return next(iter(decision.model_dump(by_alias=True)))
    return str(decision)


def _rule(answer: WireModel) -> list[str] | None:
    decision = getattr(answer, "decision", None)
    if isinstance(decision, AcceptWithExecpolicyAmendmentDecision):
        return decision.accept_with_execpolicy_amendment.execpolicy_amendment
    if isinstance(decision, ApplyNetworkPolicyAmendmentDecision):
        amendment = decision.apply_network_policy_amendment.network_policy_amendment
        return [amendment.action, amendment.host]
    return None
