"""What the log gets when a turn begins and when it ends. No I/O.

Source: docs/wire.md, "Rollout lines".
"""

from collections.abc import Sequence

from app_server.models.prompt.request import message, outputs_for_open_calls
from app_server.models.prompt.user_input import TurnInput
from app_server.runtime.clock import Clock
from app_server.sessions.publisher import TurnEnd
from app_server.threads.log.state.thread import ThreadState
from app_server.turns.running_turn import RunningTurn
from protocol.log.rollout import (
    HistoryAppended,
    InputAccepted,
    InputQueued,
    InputTaken,
    ItemCompleted,
    QueuePaused,
    Record,
    Settings,
    SettingsChanged,
    SubmissionQueued,
    SubmissionTaken,
    TurnCompleted,
    TurnStarted,
)
from protocol.model import JsonObject
from protocol.turns.items import UserMessageThreadItem
from protocol.turns.turn import TurnError


def user_message_item(
    user_input: TurnInput, clock: Clock, at_ms: int
) -> UserMessageThreadItem | None:
    """Make the item that shows what a user said; None if nobody said anything."""
    if not user_input.content:
        return None
    return UserMessageThreadItem(
        id=clock.new_id(),
        client_id=user_input.client_id,
        content=list(user_input.content),
        started_at_ms=at_ms,
        completed_at_ms=at_ms,
    )


def name_records(user_input: TurnInput, turn_id: str, at_ms: int) -> list[Record]:
    """Write down that a turn took input which its client named; nothing without a name."""
    client_id, digest = user_input.client_id, user_input.digest
    if client_id is None or digest is None:
        return []
    return [InputAccepted(at_ms=at_ms, client_id=client_id, digest=digest, turn_id=turn_id)]


def start_of_turn(
    state: ThreadState,
    started: TurnStarted,
    settings: Settings,
    user_input: TurnInput,
    user_message: UserMessageThreadItem | None,
    submission: SubmissionQueued | None,
    surroundings: Sequence[JsonObject] = (),
) -> list[Record]:
    """Write down a turn that was accepted, with what the user said and what the model is to see.

    `surroundings` are the messages about them, which come before the input.
    Queued input leaves the queue with the one line that makes it a message: a write that is cut off
    by a crash neither loses nor doubles it.
    """
    at_ms, turn_id, items = started.at_ms, started.turn_id, user_input.items
    records: list[Record] = []
    if settings != state.settings:
        records.append(SettingsChanged(at_ms=at_ms, settings=settings))
    records.extend((started, *name_records(user_input, turn_id, at_ms)))
    if state.queue.paused and user_message is None and submission is None:
        # Nobody said anything: a pause of the queue outlives such a turn.
        records.append(QueuePaused(at_ms=at_ms))
    if surroundings:
        records.append(HistoryAppended(at_ms=at_ms, items=list(surroundings)))
    if submission is not None:
        submission_id = submission.submission_id
        records.append(
            InputQueued(
                at_ms=at_ms,
                input_id=submission_id,
                items=list(items),
                message=user_message,
                submission_id=submission_id,
            )
        )
        # The second is for those who drop the turn later: its input does not wait again.
        return [
            *records,
            InputTaken(at_ms=at_ms),
            SubmissionTaken(at_ms=at_ms, submission_id=submission_id),
        ]
    if user_message is not None:
        records.append(ItemCompleted(at_ms=at_ms, turn_id=turn_id, item=user_message))
    if items:
        marks = list(user_input.signals) or None
        records.append(HistoryAppended(at_ms=at_ms, items=list(items), signals=marks))
    return records


def end_of_turn(
    state: ThreadState, turn: RunningTurn, at_ms: int, end: TurnEnd, error: TurnError | None
) -> list[Record]:
    """Write down how a turn ended, and what the model is to know of that."""
    records: list[Record] = []
    remembered = outputs_for_open_calls(state.history) if end != "completed" else []
    if end == "interrupted":
        remembered.append(message("developer", turn.interruption))
    if remembered:
        records.append(HistoryAppended(at_ms=at_ms, items=remembered))
    records.append(
        TurnCompleted(
            at_ms=at_ms,
            turn_id=turn.id,
            status=end,
            error=error,
            duration_ms=at_ms - state.turns[-1].started_at_ms,
        )
    )
    if end == "interrupted" and turn.is_interrupted:
        records.append(QueuePaused(at_ms=at_ms))
    return records
