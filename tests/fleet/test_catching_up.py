"""What a client has missed of a thread whose owner died."""

from typing import Any

import pytest

from app_server.fleet.catching_up import missed
from app_server.fleet.link import Followed
from protocol.turns.items import AgentMessageThreadItem
from protocol.turns.turn import Turn, TurnStatus


def turn(turn_id: str, status: TurnStatus, *items: str) -> Turn:
    messages: list[Any] = [AgentMessageThreadItem(id=item, text=item) for item in items]
    return Turn(id=turn_id, items=messages, status=status, started_at=3)


ONE = turn("1", "completed", "a", "b")
OPEN_TWO = turn("2", "interrupted", "c", "d")
THREE = turn("3", "inProgress", "e")


@pytest.mark.parametrize(
    ("seen", "turns", "events"),
    [
        # Of the turn that ran: what was not seen, and the end.
        (Followed("2", is_open=True, completed={"c"}), [OPEN_TWO, ONE], ["item d", "end 2"]),
        # A turn that was seen to its end.
        (Followed("2"), [OPEN_TWO, ONE], []),
        # The next owner has begun another one meanwhile, which runs.
        (
            Followed("2", is_open=True, completed={"c", "d"}),
            [THREE, OPEN_TWO],
            ["end 2", "start 3", "item e"],
        ),
        # Turns that began and ended unseen come in their order.
        (
            Followed("1"),
            [THREE, OPEN_TWO, ONE],
            ["start 2", "item c", "item d", "end 2", "start 3", "item e"],
        ),
        # Nothing was seen, so nothing is known to be missed.
        (Followed(), [OPEN_TWO, ONE], []),
        (Followed("0", is_open=True), [OPEN_TWO, ONE], []),
        (Followed("1", is_open=True), [], []),
    ],
)
def test_what_the_log_has_and_the_client_has_not(
    seen: Followed, turns: list[Turn], events: list[str]
) -> None:
    assert [_shown(event) for event in missed("t", seen, turns)] == events


def _shown(event: Any) -> str:
    assert event.thread_id == "t"
    match type(event).__name__:
        case "ItemCompletedNotification":
            return f"item {event.item.id}"
        case "TurnStartedNotification":
            assert (event.turn.status, event.turn.items) == ("inProgress", [])
            return f"start {event.turn.id}"
        case _:
            assert event.turn.items == []
            return f"end {event.turn.id}"
