"""What the log of a thread has and a client has not, after the owner of the thread has died.

Source: docs/scale.md, "When an owner dies".
"""

from collections.abc import Collection, Iterator, Sequence

from app_server.fleet.link import Followed
from protocol.model import WireModel
from protocol.turns.items import ItemCompletedNotification
from protocol.turns.notifications import TurnCompletedNotification, TurnStartedNotification
from protocol.turns.turn import Turn


def missed(thread_id: str, seen: Followed, turns: Sequence[Turn]) -> Iterator[WireModel]:
    """Give the events that bring a client up to date; `turns` are the newest, the newest first.

    Of an item that a client has seen begin, it is sent the end alone, as of one that it has not.
    """
    unseen: list[Turn] = []
    for turn in turns:
        if turn.id == seen.turn_id:
            if seen.is_open:
                yield from _rest(thread_id, turn, seen.completed)
            break
        unseen.append(turn)
    else:
        # Nothing is known to be missed of a thread whose newest turn was never seen.
        return
    for turn in reversed(unseen):
        started = turn.model_copy(
            update={"items": [], "status": "inProgress", "completed_at": None, "error": None}
        )
        yield TurnStartedNotification(thread_id=thread_id, turn=started)
        yield from _rest(thread_id, turn, ())


def _rest(thread_id: str, turn: Turn, completed: Collection[str]) -> Iterator[WireModel]:
    at_ms = (turn.completed_at or turn.started_at or 0) * 1000
    # What is in the log of a turn that runs is complete, too.
    for item in turn.items:
        if getattr(item, "id", None) not in completed:
            yield ItemCompletedNotification(
                thread_id=thread_id, turn_id=turn.id, item=item, completed_at_ms=at_ms
            )
    if turn.status != "inProgress":
        yield TurnCompletedNotification(
            thread_id=thread_id,
            turn=turn.model_copy(update={"items": [], "items_view": "notLoaded"}),
        )
