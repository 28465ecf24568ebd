"""Compactions that a turn begins with, or makes between its requests."""

import json
from pathlib import Path
from typing import Any

from app_server.turns.model_exchange import MAX_IN_A_ROW, PROMPT
from protocol.turns.items import ContextCompactionThreadItem
from tests.support.harness import claim, methods_of, serve
from tests.support.model import USAGE, calls, says
from tests.support.threads.compaction import (
    TOO_LONG,
    compact,
    stored,
    summed_up,
    talked,
    text,
)


def used(script: list[Any], tokens: int) -> list[Any]:
    """Let a scripted response say how many tokens it took."""
    usage = {**USAGE, "input_tokens": tokens - 5, "total_tokens": tokens}
    return [*script[:-1], {"type": "response.completed", "response": {"id": "r", "usage": usage}}]


# By itself.


@claim("compact:before-a-turn")
async def test_a_turn_that_would_come_near_the_limit_begins_with_a_compaction(
    tmp_path: Path,
) -> None:
    async with (
        serve(tmp_path, config="model_auto_compact_token_limit = 1000") as served,
        served.client() as client,
    ):
        served.model.scripts.append(used(says("big"), 1000))
        thread_id = await talked(served, client, "one")
        served.model.scripts.append(says("sum"))
        await client.call("turn/start", {"threadId": thread_id, "input": text("two")})
        told = await client.until("turn/completed")
        items = [m["params"]["item"]["type"] for m in told if m.get("method") == "item/completed"]
        assert items == ["userMessage", "contextCompaction", "agentMessage"]
        assert served.model.inputs(1) == [
            ("user", "one"),
            ("assistant", "big"),
            ("user", PROMPT),
        ]
        assert served.model.inputs(2) == [("user", "one"), summed_up("sum"), ("user", "two")]


@claim("compact:within-a-turn")
async def test_a_turn_that_grows_to_the_limit_is_compacted_between_its_requests(
    tmp_path: Path,
) -> None:
    async with (
        serve(tmp_path, config="model_context_window = 1000") as served,
        served.client() as client,
    ):
        thread_id = await talked(served, client)
        call = {"name": "list_mcp_resources", "arguments": {}}
        served.model.scripts += [used(calls(call), 900), says("sum"), says("done")]
        assert (await client.turn(thread_id, "go"))["status"] == "completed"
        assert [item["type"] for item in served.model.items(1)] == [
            "message",
            "function_call",
            "function_call_output",
            "message",
        ]
        assert served.model.inputs(2) == [("user", "go"), summed_up("sum")]


@claim("compact:no-loop")
async def test_compactions_that_make_no_room_end_the_turn(tmp_path: Path) -> None:
    async with (
        serve(tmp_path, config="model_auto_compact_token_limit = 1000") as served,
        served.client() as client,
    ):
        thread_id = await talked(served, client)
        call = used(calls({"name": "list_mcp_resources", "arguments": {}}), 5000)
        for _ in range(MAX_IN_A_ROW + 1):
            served.model.scripts += [call, says("sum")]
        turn = await client.turn(thread_id, "go")
        assert turn["error"] == {
            "message": "the context stays above 1000 tokens, also after 3 compactions",
            "codexErrorInfo": "contextWindowExceeded",
            "additionalDetails": None,
            "misalignment": None,
        }
        kinds = [request.get("client_metadata") for request in served.model.requests]
        assert kinds == [None, {"request_kind": "compaction"}] * MAX_IN_A_ROW + [None]


@claim("compact:too-long-once")
async def test_a_request_that_the_model_finds_too_long_is_made_once_more_after_a_compaction(
    tmp_path: Path,
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await talked(served, client, "one")
        served.model.scripts += [TOO_LONG, says("sum"), says("better")]
        await client.call("turn/start", {"threadId": thread_id, "input": text("two")})
        told = await client.until("turn/completed")
        assert "error" not in methods_of(told)
        assert told[-1]["params"]["turn"]["items"][0]["text"] == "better"
        assert served.model.inputs() == [("user", "one"), summed_up("sum"), ("user", "two")]
        served.model.scripts += [TOO_LONG, says("sum"), TOO_LONG]
        await client.call("turn/start", {"threadId": thread_id, "input": text("three")})
        told = await client.until("turn/completed")
        assert methods_of(told).count("error") == 1
        assert told[-1]["params"]["turn"]["error"]["codexErrorInfo"] == "contextWindowExceeded"
        asked = len(served.model.requests)
        # Nothing to compact: the first answer stands.
        served.model.scripts.append(TOO_LONG)
        fresh = await talked(served, client)
        assert (await client.turn(fresh, "long"))["status"] == "failed"
        assert len(served.model.requests) == asked + 1


async def test_a_history_that_is_too_long_to_be_summed_up_loses_its_oldest_part(
    tmp_path: Path,
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        said = ["one", "two", "three", "four", "five"]
        thread_id = await talked(served, client, *said)
        served.model.scripts += [TOO_LONG, says("sum")]
        told = await compact(client, thread_id)
        assert told[-1]["params"]["turn"]["status"] == "completed"
        # Three of twelve: what the model was told of its environment, and one message.
        rest = [part for text in said[1:] for part in (("user", text), ("assistant", "ok"))]
        assert served.model.inputs() == [("assistant", "ok"), *rest, ("user", PROMPT)]


# Memory.


@claim("compact:bounded")
async def test_the_history_of_a_long_thread_stays_bounded(tmp_path: Path) -> None:
    async with (
        serve(tmp_path, config="model_auto_compact_token_limit = 6000") as served,
        served.client() as client,
    ):
        thread_id = await client.start_thread(modelProvider="offline")
        largest = 0
        for number in range(40):
            await client.turn(thread_id, f"turn {number} " + "x" * 400)
            history = (await stored(served, thread_id)).history
            largest = max(largest, len(json.dumps(history)))
        state = await stored(served, thread_id)
        compactions = sum(
            isinstance(item, ContextCompactionThreadItem)
            for turn in state.turns
            for item in turn.items
        )
        assert 2 < compactions < 20
        assert largest < 60_000
