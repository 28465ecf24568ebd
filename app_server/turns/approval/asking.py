"""Has an action allowed, by hooks, the reviewer or the user, and writes down what became of it.

Source: docs/tools.md, "Approvals and rules".
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

import anyio

from app_server.runtime.clock import Clock
from app_server.threads.log.live import LiveThread
from app_server.turns.approval.decisions import Asked, Decisions
from app_server.turns.hooks import ThreadHooks
from app_server.turns.ports import ClientPort
from app_server.turns.review.reviewer import ApprovalRefused, PlannedAction, Reviewer
from protocol.model import JsonObject, WireModel
from protocol.server.lifecycle import WarningNotification
from protocol.turns.approvals import (
    AcceptWithExecpolicyAmendmentDecision,
    ApplyNetworkPolicyAmendmentDecision,
)
from protocol.turns.auto_review import GuardianApprovalReviewAction

NO_ANSWER = "approval request failed"

OnDenied: TypeAlias = Callable[[], Awaitable[None]]
Answer = TypeVar("Answer", bound=WireModel)


class Denied(Exception):
    """The action must not be done; the text goes to the item and to the model."""


class ApprovalCancelled(Denied):
    """The action must not be done, and its turn has to be ended as interrupted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question(Asked):
    """An action that somebody has to allow."""

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


class Withdrawable:
    """The questions that are open, each of which ends with the turn that it was asked in."""

    def __init__(self) -> None:
        self._open: dict[anyio.CancelScope, str | None] = {}

    @contextmanager
    def asked_in(self, turn_id: str | None) -> Iterator[anyio.CancelScope]:
        """Ask in this context, which is left when the turn ends; None: no turn ends it."""
        with anyio.CancelScope() as scope:
            self._open[scope] = turn_id
            try:
                yield scope
            finally:
                del self._open[scope]

    def turn_over(self, turn_id: str) -> None:
        """Withdraw what was asked in a turn."""
        for scope, asked_in in self._open.items():
            if asked_in == turn_id:
                scope.cancel()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """The questions of one thread."""

    thread: LiveThread
    clients: ClientPort
    reviewer: Reviewer
    clock: Clock
    decisions: Decisions
    waiting: Callable[[], AbstractContextManager[None]]
    """Shows in the thread's status that the user is asked."""
    timeout_s: float | None
    """For the user's answer to `allow`; None waits without limit."""
    hooks: ThreadHooks
    """Are asked before anybody else."""
    open: Withdrawable = field(default_factory=Withdrawable)
    """What servers ask, and commands that connect: withdrawn at the end of its turn."""

    async def allow(
        self,
        question: Question,
        kind: type[Answer],
        check: Callable[[Answer], None] | None = None,
        on_denied: OnDenied | None = None,
        announce: Callable[[], None] | None = None,
    ) -> Answer | None:
        """Ask the hooks, then the reviewer or the user; returns when the action may be done.

        Gives the user's answer, which `check` did not refuse; None if a hook or the reviewer
        allowed the action, this once. `announce` is called before anybody is asked, and where only
        the user is, once the thread's status shows that. `check` raises Denied for an answer that
        does not allow the action. `on_denied` is called before that comes out, while the status is
        still that. Cancelling withdraws the question: clients are told that it is settled.

        Raises:
            Denied: somebody refused, nobody answered in time, or the answer made no sense.
        """
        asks_hooks = self.hooks.listens("PermissionRequest")
        with ExitStack() as status:
            if not (asks_hooks or self._is_reviewed):
                status.enter_context(self.waiting())
            if announce is not None:
                announce()
            try:
                if asks_hooks and await self._is_allowed_by_hook(question):
                    return None
                # The settings of the turn may have changed while a hook ran.
                if self._is_reviewed:
                    action, evidence = question.reviewed, question.evidence
                    planned = PlannedAction(question.turn_id, question.item_id, action, evidence)
                    await self.review(question, planned)
                    return None
                if asks_hooks:
                    status.enter_context(self.waiting())
                answer = await self._answer(question, kind)
                if check is not None:
                    check(answer)
            except Denied:
                if on_denied is not None:
                    await on_denied()
                raise
        return answer

    @property
    def _is_reviewed(self) -> bool:
        return self.thread.state.in_force.approvals_reviewer != "user"

    async def _is_allowed_by_hook(self, question: Question) -> bool:
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
            raise Denied(outcome.blocked)
        if outcome.allows:
            await self.decisions.write(question, "accept", "hook")
        return outcome.allows

    async def review(self, asked: Asked, planned: PlannedAction) -> None:
        """Ask the reviewer; returns when the action may be done, this once.

        Cancelling aborts the review.

        Raises:
            Denied: the reviewer refused, or came to no verdict in time.
        """
        try:
            await self.reviewer.review(planned)
        except ApprovalRefused as exc:
            await self.decisions.write(asked, "decline", "reviewer")
            raise Denied(str(exc)) from exc
        except BaseException:
            await self.decisions.write_withdrawn(asked)
            raise
        await self.decisions.write(asked, "accept", "reviewer")

    async def put(
        self,
        asked: Asked,
        method: str,
        params: WireModel,
        kind: type[Answer],
        timeout_s: float | None = None,
    ) -> tuple[Answer | None, str | None]:
        """Ask the user; gives the answer, None if it made no sense, and the client that gave it.

        What became of it is written down, but for an answer that makes sense. Cancelling withdraws
        the question.

        Raises:
            Denied: nobody answered in time; without `timeout_s` there is no limit.
        """
        try:
            with anyio.fail_after(timeout_s):
                answer, client = await self.clients.ask_by_name(self.thread.id, method, params)
        except TimeoutError as exc:
            await self.decisions.write(asked, "expired", "server")
            raise Denied(f"nobody answered within {timeout_s:g} s") from exc
        except BaseException:
            await self.decisions.write_withdrawn(asked)
            raise
        if isinstance(answer, kind):
            return answer, client
        await self.decisions.write(asked, "failed", "user", client)
        return None, client

    async def _answer(self, question: Question, kind: type[Answer]) -> Answer:
        answer, client = await self.put(
            question, question.method, question.params, kind, self.timeout_s
        )
        if answer is None:
            raise Denied(NO_ANSWER)
        await self.decisions.write(question, _word(answer), "user", client, _rule(answer))
        return answer

    def warn(self, message: str) -> None:
        """Warn the clients of the thread."""
        warning = WarningNotification(thread_id=self.thread.id, message=message)
        self.clients.emit(self.thread.id, warning)


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
