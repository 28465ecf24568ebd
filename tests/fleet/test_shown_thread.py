"""Thread that an answer shows: what is read of it, and that others run meanwhile."""

import asyncio
import json
from typing import Any

import pytest

from app_server.fleet.link import STEP_CHARS, read_shown_thread

ITEM = {
    "type": "mcpToolCall",
    "id": "i",
    "status": "inProgress",
    "result": {"id": "no item", "items": [{"id": '"],[{'}], "turns": [[], {}], "n": 1.5e3},
}
HEAD = {"type": "mcpToolCall", "id": "i", "status": "inProgress"}


def turn(turn_id: str, *items: Any) -> dict[str, Any]:
    return {"id": turn_id, "rootTurnId": None, "items": [*items], "status": "completed"}


def answer(thread: Any, **more: Any) -> str:
    return json.dumps({"thread": thread, **more}, separators=(",", ":"))


@pytest.mark.parametrize(
    ("turns", "newest"),
    [
        ([], []),
        ([turn("1")], [turn("1")]),
        ([turn("1", ITEM), turn("2")], [turn("2")]),
        ([turn("1"), turn("2", ITEM, {"id": "é\ud83d"})], [turn("2", HEAD, {"id": "é\ud83d"})]),
    ],
)
async def test_the_newest_turn_is_read_with_heads_of_its_items(turns: Any, newest: Any) -> None:
    thread = {"id": "t", "preview": "{", "gitInfo": {"id": "other"}, "turns": turns, "more": [1]}
    text = "before" + answer(thread, model="m", initialTurnsPage={"data": turns})
    assert await read_shown_thread(text, len("before")) == ("t", newest)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"model":"m"}',
        '{"thread":null}',
        '{"thread":{}}',
        '{"thread":{"id":7}}',
        '{"thread":{"id":"t","turns":null}}',
        '{"thread":{"id":"t","turns":[{"id":"1","items":[',
        '{"thread":{"id":"t","turns":[{"id":"1"',
        '{"thread":{"id":"t","turns":[{"id":"1"}{"id":"2"}]}}',
        '{"thread":{"id":"t","turns":[{"id" "1"}]}}',
        '{"thread":{"id":"t","turns":' + "[" * 100_000,
        '{"thread":{"id":' + "[" * 100_000,
    ],
)
async def test_what_is_no_such_answer_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no . at|without a thread|too deeply|Expecting"):
        await read_shown_thread(text, 0)


ITEMS = [{"type": "agentMessage", "id": str(n), "text": "x" * 1000} for n in range(9_000)]


@pytest.mark.parametrize(
    "turns",
    [
        [turn("1", *ITEMS[:4_500]), turn("2", *ITEMS[4_500:])],
        # As of a client that asks for turns without their items.
        [turn(f"{n:01000}") for n in range(9_000)],
    ],
)
async def test_others_run_while_a_large_answer_is_read(turns: list[dict[str, Any]]) -> None:
    text = answer({"id": "t", "turns": turns})
    reading = asyncio.create_task(read_shown_thread(text, 0))
    turns_of_loop = 0
    while not reading.done():
        await asyncio.sleep(0)
        turns_of_loop += 1
    assert turns_of_loop > len(text) // STEP_CHARS * 9 // 10
    heads = [{name: item[name] for name in ("id", "type")} for item in turns[-1]["items"]]
    assert await reading == ("t", [{**turns[-1], "items": heads}])
