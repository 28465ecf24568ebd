"""turns: items that clients inject."""

from pathlib import Path
from typing import Any

import pytest

from app_server.models.prompt.response_items import first_problem
from tests.support.harness import WireClient, claim, serve
from tests.support.model import Gate, says
from tests.support.turns import raw, start_turn


@claim("inject:idle", "inject:before-first-turn", "inject:after-restart")
async def test_injected_items_are_there_at_the_next_request(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        here = {"threadId": thread_id}
        await client.call("thread/inject_items", {**here, "items": [raw("before")]})
        await client.turn(thread_id, "one")
        await client.call("thread/inject_items", {**here, "items": [raw("idle")]})
        heard = [message["method"] for message in await _received_so_far(client, thread_id)]
        assert [method for method in heard if method.startswith("item/")] == []
    async with serve(tmp_path) as served, served.client() as client:
        error = await client.refusal("thread/inject_items", {**here, "items": [raw("x")]})
        assert error.data["code"] == "threadNotFound"
        await client.call("thread/resume", here)
        await client.call("thread/inject_items", {**here, "items": [raw("after restart")]})
        await client.turn(thread_id, "two")
        assert served.model.inputs() == [
            ("developer", "before"),
            ("user", "one"),
            ("assistant", "ok"),
            ("developer", "idle"),
            ("developer", "after restart"),
            ("user", "two"),
        ]


async def _received_so_far(client: WireClient, thread_id: str) -> list[Any]:
    await client.request("thread/name/set", {"threadId": thread_id, "name": "marker"})
    return [m for m in await client.until("thread/name/updated") if "method" in m]


async def test_items_injected_late_in_a_turn_wait_for_the_next_one(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        gate = Gate()
        script = says("only")
        served.model.scripts.append([*script[:2], gate, *script[2:]])
        await start_turn(client, thread_id, "go")
        await gate.wait_until_reached()
        injected = {"threadId": thread_id, "items": [raw("late")]}
        await client.call("thread/inject_items", injected)
        gate.opened.set()
        await client.wait_for("turn/completed")
        assert len(served.model.requests) == 1
        await client.turn(thread_id, "next")
        assert served.model.inputs() == [
            ("user", "go"),
            ("assistant", "only"),
            ("developer", "late"),
            ("user", "next"),
        ]


@claim("inject:invalid")
async def test_an_item_that_no_model_takes_is_refused_by_its_index(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        here = {"threadId": thread_id}
        empty = await client.refusal("thread/inject_items", {**here, "items": []})
        assert (empty.code, empty.message) == (-32600, "items must not be empty")
        bad = await client.refusal(
            "thread/inject_items", {**here, "items": [raw("fine"), {"type": "bogus"}]}
        )
        assert bad.code == -32602
        assert bad.message == (
            "Invalid params: `items[1]`: `type` 'bogus' is not a Responses input item"
        )
        assert bad.data["field"] == "items[1]"
        await client.turn(thread_id, "go")
        assert served.model.inputs() == [("user", "go")]


@pytest.mark.parametrize(
    ("item", "rule"),
    [
        (5, "must be an object"),
        ({}, "`type` is missing"),
        ({"type": None}, "`type` is missing"),
        ({"type": 5}, "`type` 5 is not a Responses input item"),
        ({"type": "message"}, "`role` must be one of assistant, developer, system, user"),
        ({"role": "user"}, "`content` must be a string or a list that is not empty"),
        ({"role": "user", "content": []}, "`content` must be a string or a list that is not empty"),
        (
            {"role": "user", "content": [{"type": "input_text"}]},
            "`content[0].text` must be a string",
        ),
        (
            {"role": "user", "content": [raw("x")["content"][0], 5]},
            "`content[1].type` None is not a content part",
        ),
        ({"type": "function_call", "call_id": "c", "name": "n"}, "`arguments` must be a string"),
        (
            {"type": "function_call_output", "call_id": "c"},
            "`output` must be a string or a list",
        ),
    ],
)
def test_items_break_rules(item: Any, rule: str) -> None:
    assert first_problem([raw("fine"), item]) == (1, rule)


def test_items_keep_rules() -> None:
    image = {"type": "input_image", "image_url": "data:"}
    fine = [
        {"role": "user", "content": "short form"},
        {"type": "message", "role": "assistant", "content": [image]},
        {"type": "function_call", "call_id": "c", "name": "n", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": []},
        {"type": "reasoning", "summary": []},
    ]
    assert first_problem(fine) is None
