"""What a client has missed of a thread whose owner died."""

from typing import Any

import pytest

from app_server.fleet.catching_up import DeliveredTurn, Mark, TooMuchMissed, missed
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
        (DeliveredTurn("2", is_open=True, completed={"c"}), [OPEN_TWO, ONE], ["item d", "end 2"]),
        # A turn that was seen to its end.
        (DeliveredTurn("2"), [OPEN_TWO, ONE], []),
        # The next owner has begun another one meanwhile, which runs.
        (
            DeliveredTurn("2", is_open=True, completed={"c", "d"}),
            [THREE, OPEN_TWO],
            ["end 2", "start 3", "item e"],
        ),
        # Turns that began and ended unseen come in their order.
        (
            DeliveredTurn("1"),
            [THREE, OPEN_TWO, ONE],
            ["start 2", "item c", "item d", "end 2", "start 3", "item e"],
        ),
        # There was no turn yet.
        (
            DeliveredTurn(),
            [OPEN_TWO, ONE],
            ["start 1", "item a", "item b", "end 1", "start 2", "item c", "item d", "end 2"],
        ),
        # The turn was reverted.
        (DeliveredTurn("0", is_open=True), [OPEN_TWO, ONE], []),
        (DeliveredTurn("1", is_open=True), [], []),
    ],
)
def test_what_the_log_has_and_the_client_has_not(
    seen: DeliveredTurn, turns: list[Turn], events: list[str]
) -> None:
    assert [_shown(event) for event in missed("t", seen, turns)] == events


def test_more_turns_than_are_read_are_too_many() -> None:
    turns = [turn(str(number), "completed") for number in range(9, 4, -1)]
    with pytest.raises(TooMuchMissed):
        list(missed("t", DeliveredTurn("4"), turns))


def test_what_came_before_the_rest_is_told_once() -> None:
    seen = DeliveredTurn("2", is_open=True, completed={"c"}, early={})
    # The next owner says this while the log is read.
    came = [Mark("turn/started", "3"), Mark("item/started", "3", "e")]
    assert [seen.note(mark) for mark in came] == [True, True]
    turns = [turn("3", "inProgress", "e", "f"), OPEN_TWO, ONE]
    told = [_shown(event) for event in seen.brought_up("t", turns)]
    assert told == ["item d", "end 2", "item e", "item f"]
    # And this afterwards, of which the log has had a part.
    came = [
        Mark("item/completed", "3", "e"),
        Mark("item/started", "3", "f"),
        Mark("item/completed", "3", "f"),
        Mark("item/started", "3", "g"),
        Mark("item/completed", "3", "g"),
    ]
    assert [seen.note(mark) for mark in came] == [False, False, False, True, True]
    assert (seen.turn_id, seen.is_open, seen.completed) == ("3", True, {"e", "f", "g"})
    # Once more, with all that is known now.
    seen.early = {}
    ended = turn("3", "interrupted", "e", "f", "g", "h")
    assert [_shown(one) for one in seen.brought_up("t", [ended])] == ["item h", "end 3"]


def test_what_a_turn_left_running_ends_in_a_later_one() -> None:
    seen = DeliveredTurn("2", is_open=True, completed={"c"})
    assert seen.note(Mark("item/completed", "1", "b"))
    assert seen == DeliveredTurn("2", is_open=True, completed={"c"})


@pytest.mark.parametrize(
    ("last", "completed"),
    [
        ({"type": "userMessage", "id": "z"}, {"a", "z"}),
        # It may still be written.
        ({"type": "agentMessage", "id": "z"}, {"a"}),
        ({"type": "commandExecution", "id": "z", "status": "inProgress"}, {"a"}),
        ({"type": "commandExecution", "id": "z", "status": "completed"}, {"a", "z"}),
    ],
)
def test_an_answer_shows_what_a_client_has_seen(last: dict[str, str], completed: set[str]) -> None:
    items = [
        {"type": "agentMessage", "id": "a"},
        {"type": "mcpToolCall", "id": "b", "status": "inProgress"},
        last,
    ]
    turns: list[Any] = [
        {"id": "1", "status": "completed", "items": []},
        {"id": "2", "status": "inProgress", "items": items},
    ]
    assert DeliveredTurn.from_answer(turns) == DeliveredTurn("2", is_open=True, completed=completed)
    assert DeliveredTurn.from_answer(turns[:1]) == DeliveredTurn("1")
    assert DeliveredTurn.from_answer([]) == DeliveredTurn()


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
