"""Questions about actions: hooks, the reviewer or the user decide, and the log keeps the decision.

A question is a value, and so is its decision. The order of what happens around it stands in its
caller. A command is announced once the thread's status shows that the user is asked:

    with questions.open(question) as open_question:
        recorder.started(item)
        decision = await open_question.decide()
        if not decision.is_allowed:
            await recorder.completed(declined_item)

A patch, and a call of an MCP tool, is announced before `open`, whatever is decided.

Source: docs/tools.md, "Approvals and rules".
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeAlias

import anyio

from app_server.runtime.clock import Clock
from app_server.runtime.cut_text import cut_middle
from app_server.threads.log.live import LiveThread
from app_server.turns.approval.reviewer import ApprovalRefused, PlannedAction, Reviewer, is_reviewed
from app_server.turns.clients import ThreadClients
from app_server.turns.hooks import ThreadHooks
from app_server.turns.slot import SessionStatus
from protocol.log.rollout import ApprovalDecided
from protocol.model import JsonObject, WireModel
from protocol.server.lifecycle import WarningNotification
from protocol.turns.policy import ApprovalsReviewer

UNUSABLE_ANSWER = "approval request failed"
NOT_OFFERED = "an approval was answered with a rule that was not offered: it counts as refused"

MAX_SUBJECT_BYTES = 4_096
"""Of the subject of a question, in the log."""

ActionKind: TypeAlias = Literal["command", "fileChange", "permissions", "mcpToolCall", "network"]
DecidedBy: TypeAlias = Literal["user", "reviewer", "server", "hook", "policy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedAction:
    """An action, as the record of the decision about it has it."""

    action: ActionKind
    turn_id: str
    item_id: str
    """The item that clients see of it."""
    subject: str
    """The action in a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The decision about an action."""

    is_allowed: bool
    by: DecidedBy
    word: str
    """The decision as the log has it; see ApprovalDecided."""
    text: str = ""
    """Why not, for the item and for the model."""
    ends_turn: bool = False
    """Whether the user cancelled the turn too, which has to be interrupted."""
    answer: WireModel | None = None
    """The user's answer; None where somebody else decided, which is for this once."""
    rule: list[str] | None = None
    """The rule that the user chose with it."""
    client: str | None = None
    """The name of the client that answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookedTool:
    """An action as the hooks of `PermissionRequest` are given it."""

    name: str
    input: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Question(RecordedAction, ABC):
    """An action that has to be allowed."""

    unusable_answer: ClassVar[str] = UNUSABLE_ANSWER
    """The text of a decision where the client's answer made no sense, or was not offered."""
    not_offered: ClassVar[str] = NOT_OFFERED
    """The warning about an answer that was not offered."""
    is_timed: ClassVar[bool] = True
    """Whether the user has only as long as the settings say."""

    method: str
    params: WireModel
    planned: PlannedAction
    """The action as the reviewer and its clients are shown it."""
    hooked: HookedTool | None = None
    """None: no hook is asked."""
    reviewer: ApprovalsReviewer | None = None
    """Takes the place of the thread's setting."""

    @abstractmethod
    def read(self, answer: WireModel, client: str | None) -> Decision | None:
        """Return the decision that a user's answer is; None for one that makes no sense here.

        A rule that was not offered makes none; a simple decision may be given unoffered.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadQuestions:
    """The questions of one loaded thread."""

    log: LiveThread
    clients: ThreadClients
    status: SessionStatus
    reviewer: Reviewer
    clock: Clock
    timeout_s: float | None
    """For the user's answer to a timed question; None waits without limit."""
    hooks: ThreadHooks
    _withdrawable: dict[anyio.CancelScope, str | None] = field(default_factory=dict, init=False)
    """With the turn that ends each."""

    @contextmanager
    def open(self, question: Question) -> Iterator["OpenQuestion"]:
        """Give a question to be decided in the context, which the thread's status may show."""
        asks_hooks = question.hooked is not None and self.hooks.listens("PermissionRequest")
        with ExitStack() as status:
            opened = OpenQuestion(self, question, asks_hooks, status)
            if not (asks_hooks or opened.is_reviewed):
                status.enter_context(self.status.waiting_on("waitingOnApproval"))
            yield opened

    async def record(self, action: RecordedAction, decision: Decision) -> None:
        """Write a decision to the thread's log.

        Raises:
            OSError: the disk refused, or the thread was unloaded.
        """
        record = ApprovalDecided(
            at_ms=self.clock.now_ms(),
            turn_id=action.turn_id,
            item_id=action.item_id,
            action=action.action,
            subject=cut_middle(action.subject, MAX_SUBJECT_BYTES),
            decision=decision.word,
            by=decision.by,
            client=decision.client,
            rule=decision.rule,
        )
        # The end of the turn syncs it, as it does its items.
        await self.log.append(record, sync=False)

    @contextmanager
    def withdrawn_with(self, turn_id: str | None) -> Iterator[anyio.CancelScope]:
        """Ask in a context that is cancelled when the turn ends; None: no turn ends it."""
        with anyio.CancelScope() as scope:
            self._withdrawable[scope] = turn_id
            try:
                yield scope
            finally:
                del self._withdrawable[scope]

    def turn_ended(self, turn_id: str) -> None:
        """Withdraw the questions of servers and of connections that were asked in a turn."""
        for scope, scope_turn_id in self._withdrawable.items():
            if scope_turn_id == turn_id:
                scope.cancel()

    def warn(self, message: str) -> None:
        """Warn the clients of the thread."""
        self.clients.emit(WarningNotification(thread_id=self.log.id, message=message))


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """An open question: while it lasts, the thread's status may show that the user is asked."""

    questions: ThreadQuestions
    question: Question
    asks_hooks: bool
    status: ExitStack
    """Leaves the status with the question."""

    @property
    def is_reviewed(self) -> bool:
        """Whether the reviewer decides, and not the user, by the settings as they are now."""
        return is_reviewed(self.question.reviewer, self.questions.log.state.in_force)

    async def decide(self) -> Decision:
        """Ask the hooks, then the reviewer or the user, and record the decision.

        Waits for the user as long as the settings say. Cancelling withdraws the question: clients
        are sent that it is settled.

        Raises:
            OSError: the decision cannot be recorded; the action must not be done.
        """
        decision = await self._ask_hooks() if self.asks_hooks else None
        if decision is None:
            try:
                # The settings of the turn may have changed while a hook ran.
                decision = await (self._ask_reviewer() if self.is_reviewed else self._ask_user())
            except BaseException:
                await self._record_withdrawn()
                raise
        await self.questions.record(self.question, decision)
        return decision

    async def _ask_hooks(self) -> Decision | None:
        question, hooked = self.question, self.question.hooked
        assert hooked is not None
        outcome = await self.questions.hooks.fire(
            "PermissionRequest",
            question.turn_id,
            hooked.name,
            question.item_id,
            tool_name=hooked.name,
            tool_input=hooked.input,
        )
        if outcome.blocked is not None:
            return Decision(is_allowed=False, by="hook", word="decline", text=outcome.blocked)
        return Decision(is_allowed=True, by="hook", word="accept") if outcome.allows else None

    async def _ask_reviewer(self) -> Decision:
        try:
            await self.questions.reviewer.review(self.question.planned)
        except ApprovalRefused as exc:
            return Decision(is_allowed=False, by="reviewer", word="decline", text=str(exc))
        return Decision(is_allowed=True, by="reviewer", word="accept")

    async def _ask_user(self) -> Decision:
        questions, question = self.questions, self.question
        if self.asks_hooks:
            self.status.enter_context(questions.status.waiting_on("waitingOnApproval"))
        timeout_s = questions.timeout_s if question.is_timed else None
        try:
            with anyio.fail_after(timeout_s):
                answer, client = await questions.clients.ask(question.method, question.params)
        except TimeoutError:
            text = f"nobody answered within {timeout_s:g} s"
            return Decision(is_allowed=False, by="server", word="expired", text=text)
        if answer is not None:
            decision = question.read(answer, client)
            if decision is not None:
                return decision
            questions.warn(question.not_offered)
        text = question.unusable_answer
        return Decision(is_allowed=False, by="user", word="failed", text=text, client=client)

    async def _record_withdrawn(self) -> None:
        withdrawn = Decision(is_allowed=False, by="server", word="cancel")
        # Whatever stopped the turn is what comes through.
        with anyio.CancelScope(shield=True), suppress(OSError):
            await self.questions.record(self.question, withdrawn)
