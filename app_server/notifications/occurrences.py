"""Occurrences: what happened in a thread, as notifications have it, and their bodies.

Source: docs/notifications.md, "Body".
"""

import base64
import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pydantic_core import to_json

from app_server.models.interface import kind_of
from app_server.notifications.settings import Target
from app_server.runtime.cut_text import cut_text
from app_server.threads.log.state import ThreadState, TurnState
from app_server.turns.usage.budgets import BUDGET_EXCEEDED
from protocol.model import JsonObject, WireModel
from protocol.signals.delivery import SignalUpdatedNotification
from protocol.signals.wakes import ThreadWakeChangedNotification
from protocol.threads.budget import ThreadBudgetUpdatedNotification
from protocol.turns.approvals import (
    CommandExecutionRequestApprovalParams,
    FileChangeRequestApprovalParams,
    PermissionsRequestApprovalParams,
    ToolRequestUserInputParams,
)
from protocol.turns.elicitation import ElicitationBase, UserVerificationElicitation
from protocol.turns.items import AgentMessageThreadItem, TextUserInput, UserMessageThreadItem
from protocol.turns.notifications import TurnCompletedNotification
from protocol.turns.turn import TurnError

MAX_TEXT_BYTES = 4_096
"""Of the text that `content` adds."""
MAX_NAME_CHARS = 256
"""Of the name of a thread."""
MAX_ARGUMENT_BYTES = 100_000
"""Of the texts in the argument of `notify`; Linux takes arguments of up to 128 KiB."""

RESOLVED = "resolved"
QUESTIONS = ("approvalRequested", "inputRequested")
"""Events that `resolved` follows."""
SERVER_STOPPED = "serverStopped"
"""The `error` of a turn that ended with its server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadFacts:
    """Id, name, folder and client of a thread, for notifications."""

    id: str
    name: str | None
    cwd: str | None
    """None where the thread is gone."""
    client: str | None = None
    """The client that began it; `notify` alone says so."""

    @classmethod
    def of(cls, state: ThreadState) -> "ThreadFacts":
        """Take them from the state of a thread."""
        name = None if state.name is None else state.name[:MAX_NAME_CHARS]
        client = state.created.originator
        return cls(id=state.id, name=name, cwd=state.settings.cwd, client=client)


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """One event of a thread."""

    event: str
    thread: ThreadFacts
    subject: str
    """Id of the turn, the question or whatever else it is about: the event happens once to it."""
    at_ms: int
    facts: JsonObject = field(default_factory=dict)
    """Members of the body that are about this event."""
    text: str | None = None
    """For receivers with `content` alone."""
    inputs: Sequence[str] = ()
    """Texts of the user's messages; `notify` alone has them."""

    @property
    def asks_for(self) -> Collection[str]:
        """Events of which a receiver must have named one to be sent this."""
        return QUESTIONS if self.event == RESOLVED else (self.event,)

    @property
    def id(self) -> str:
        """Stable id: follows from event, thread and subject."""
        words = to_json([self.event, self.thread.id, self.subject])
        digest = base64.b32encode(hashlib.sha256(words).digest()[:20]).decode().lower()
        return f"msg_{digest}"


def body_of(occurrence: Occurrence, target: Target, link: str | None) -> str:
    """Render the JSON that a receiver is sent."""
    if target.kind == "notify":
        return _codex_body(occurrence)
    thread = occurrence.thread
    at = datetime.fromtimestamp(occurrence.at_ms / 1000, UTC)
    data: JsonObject = {
        "id": occurrence.id,
        "threadId": thread.id,
        "threadName": thread.name,
        "cwd": thread.cwd,
        "link": None if link is None else f"{link}#/threads/{thread.id}",
        **occurrence.facts,
    }
    if target.content and occurrence.text is not None:
        data["text"] = cut_text(occurrence.text, MAX_TEXT_BYTES)
    timestamp = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return to_json({"type": occurrence.event, "timestamp": timestamp, "data": data}).decode()


def _codex_body(occurrence: Occurrence) -> str:
    """Render the argument of `notify`, as the reference writes it; the newest inputs that fit."""
    left = MAX_ARGUMENT_BYTES
    last = None if occurrence.text is None else cut_text(occurrence.text, left // 2)
    left -= len(to_json(last))
    inputs: list[str] = []
    for text in reversed(occurrence.inputs):
        left -= len(to_json(text))
        if left < 0:
            break
        inputs.insert(0, text)
    thread = occurrence.thread
    body = {
        "type": "agent-turn-complete",
        "thread-id": thread.id,
        "turn-id": occurrence.subject,
        "cwd": thread.cwd,
        "client": thread.client,
        "input-messages": inputs,
        "last-assistant-message": last,
    }
    return to_json(body).decode()


# Turns.


def of_turn_end(
    event: TurnCompletedNotification, state: ThreadState, at_ms: int
) -> Occurrence | None:
    """Return what the end of a turn is; None for one that somebody interrupted."""
    turn = event.turn
    texts = [item.text for item in turn.items if isinstance(item, AgentMessageThreadItem)]
    text = texts[-1] if texts else None
    return _turn_ended(state, turn.id, turn.status, turn.error, text, at_ms)


def of_logged_turn(state: ThreadState, turn: TurnState, at_ms: int) -> Occurrence | None:
    """Return what a turn of a log is that no server runs any more; None: somebody interrupted it.

    One that its server did not end has failed, also where a later load has closed it. Of one that a
    budget has ended the log does not say which budget that was.
    """
    if turn.error is not None and turn.error.codex_error_info == BUDGET_EXCEEDED:
        ended_ms = turn.completed_at_ms or at_ms
        return _budget_reached(ThreadFacts.of(state), ended_ms, turn.id, None, None, exceeded=True)
    is_given_up = turn.status == "interrupted" and turn.duration_ms is None
    if turn.status == "inProgress" or is_given_up:
        facts: JsonObject = {"turnId": turn.id, "status": "interrupted", "error": SERVER_STOPPED}
        thread = ThreadFacts.of(state)
        return Occurrence(
            event="turnFailed", thread=thread, subject=turn.id, at_ms=at_ms, facts=facts
        )
    said = [item for item in turn.items if isinstance(item, AgentMessageThreadItem)]
    text = said[-1].text if said and turn.status == "completed" else None
    ended_ms = turn.completed_at_ms or at_ms
    return _turn_ended(state, turn.id, turn.status, turn.error, text, ended_ms)


def _turn_ended(
    state: ThreadState,
    turn_id: str,
    status: object,
    error: TurnError | None,
    text: str | None,
    at_ms: int,
) -> Occurrence | None:
    if status not in ("completed", "failed"):
        return None
    facts: JsonObject = {"turnId": turn_id, "status": str(status)}
    if status == "failed":
        facts["error"] = "other" if error is None else kind_of(error.codex_error_info)
        text = None if error is None else error.message
    return Occurrence(
        event="turnCompleted" if status == "completed" else "turnFailed",
        thread=ThreadFacts.of(state),
        subject=turn_id,
        at_ms=at_ms,
        facts=facts,
        text=text,
    )


def inputs_of(state: ThreadState) -> Sequence[str]:
    """Return the texts of the user's messages in the turns that memory has, in their order."""
    return [
        "".join(part.text for part in item.content if isinstance(part, TextUserInput))
        for turn in state.turns
        for item in turn.items
        if isinstance(item, UserMessageThreadItem)
    ]


# Questions.


def of_question(
    thread: ThreadFacts, question_id: str, params: WireModel, at_ms: int
) -> Occurrence | None:
    """Return what a question to clients is; None where no person is asked."""
    match params:
        case CommandExecutionRequestApprovalParams():
            kind, text = "command", params.command or params.reason
        case FileChangeRequestApprovalParams():
            kind, text = "fileChange", params.reason
        case PermissionsRequestApprovalParams():
            kind, text = "permissions", params.reason
        case ToolRequestUserInputParams():
            kind, text = "question", "\n".join(one.question for one in params.questions)
        case UserVerificationElicitation():
            kind, text = "verification", params.description
        case ElicitationBase():
            meta = getattr(params, "meta", None)
            is_approval = isinstance(meta, dict) and meta.get("codex_approval_kind") is not None
            kind, text = "mcpToolCall" if is_approval else "form", getattr(params, "message", None)
        case _:
            return None
    is_input = kind in ("question", "form")
    facts: JsonObject = {
        "questionId": question_id,
        "turnId": getattr(params, "turn_id", None),
        "kind": kind,
    }
    return Occurrence(
        event="inputRequested" if is_input else "approvalRequested",
        thread=thread,
        subject=question_id,
        at_ms=at_ms,
        facts=facts,
        text=text,
    )


def resolved(thread: ThreadFacts, question_id: str, outcome: str, at_ms: int) -> Occurrence:
    """Return the end of a question: `answered`, or `withdrawn` where nobody can answer any more."""
    facts: JsonObject = {"questionId": question_id, "outcome": outcome}
    return Occurrence(event=RESOLVED, thread=thread, subject=question_id, at_ms=at_ms, facts=facts)


# Signals.


def of_signal(
    event: SignalUpdatedNotification, thread: ThreadFacts, at_ms: int
) -> Occurrence | None:
    """Return what the receipt of a signal is; None unless nothing will become of the signal."""
    receipt = event.receipt
    if receipt.stage not in ("failed", "expired"):
        return None
    facts: JsonObject = {
        "source": receipt.source,
        "signalId": receipt.signal_id,
        "stage": receipt.stage,
        "error": None if receipt.error is None else receipt.error.code,
    }
    subject = to_json([receipt.source, receipt.signal_id]).decode()
    return Occurrence(event="signalDead", thread=thread, subject=subject, at_ms=at_ms, facts=facts)


# Wakes and budgets.


def of_wake(
    event: ThreadWakeChangedNotification, thread: ThreadFacts, at_ms: int
) -> Occurrence | None:
    """Return what a change of a wake is; None unless the wake is lost."""
    if event.state != "lost":
        return None
    error = None if event.error is None else event.error.code
    facts: JsonObject = {"wakeId": event.wake_id, "error": error}
    return Occurrence(
        event="wakeLost", thread=thread, subject=event.wake_id, at_ms=at_ms, facts=facts
    )


def of_budget(
    event: ThreadBudgetUpdatedNotification, thread: ThreadFacts, at_ms: int
) -> Occurrence | None:
    """Return what a change of a budget is; None unless it is used up, or has ended a turn."""
    if event.threshold != 100 and not event.exceeded:
        return None
    return _budget_reached(
        thread, at_ms, event.turn_id, str(event.scope), event.name, exceeded=event.exceeded
    )


def _budget_reached(
    thread: ThreadFacts,
    at_ms: int,
    turn_id: str | None,
    scope: str | None,
    name: str | None,
    *,
    exceeded: bool,
) -> Occurrence:
    # One budget alone ends a turn.
    subject = to_json([turn_id] if exceeded else [scope, name, turn_id]).decode()
    facts: JsonObject = {"turnId": turn_id, "scope": scope, "name": name, "exceeded": exceeded}
    return Occurrence(
        event="budgetReached", thread=thread, subject=subject, at_ms=at_ms, facts=facts
    )
