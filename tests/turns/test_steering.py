"""turns: input during a turn, interrupting, and turns without their client."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from app_server.models.prompt.request import INTERRUPTED
from tests.support.harness import claim, serve
from tests.support.model import BREAK, Gate, calls, says
from tests.support.turns import raw, start_turn, text_input

GO = ("user", "go")
STEERED = ("user", "steered")
WHOLE = {
    "type": "message",
    "role": "assistant",
    "id": "msg_1",
    "content": [{"type": "output_text", "text": "whole"}],
}
THOUGHT = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "thought"}],
}
PLAN = {"plan": [{"step": "one", "status": "pending"}]}
CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "update_plan",
    "arguments": json.dumps(PLAN),
}
EVERYTHING: list[dict[str, Any]] = [
    {"type": "response.created", "response": {"id": "resp"}},
    {"type": "response.output_item.added", "item": {**THOUGHT, "summary": []}},
    {"type": "response.reasoning_summary_text.delta", "item_id": "rs_1", "summary_index": 0}
    | {"delta": "thought"},
    {"type": "response.output_item.done", "item": THOUGHT},
    {"type": "response.output_item.added", "item": {**WHOLE, "content": []}},
    {"type": "response.output_text.delta", "item_id": "msg_1", "delta": "who"},
    {"type": "response.output_text.delta", "item_id": "msg_1", "delta": "le"},
    {"type": "response.output_item.done", "item": WHOLE},
    {"type": "response.output_item.added", "item": {**CALL, "arguments": ""}},
    {"type": "response.output_item.done", "item": CALL},
    {"type": "response.output_item.added", "item": {**WHOLE, "id": "msg_2", "content": []}},
    {"type": "response.output_text.delta", "item_id": "msg_2", "delta": "more"},
]
"""A response that does all there is, but end."""
SEEN = {"type": "response.output_item.added", "item": {**THOUGHT, "id": "rs_seen", "summary": []}}
"""Begins one more item, so that clients hear that all before it was read."""


def steering(thread_id: str, turn_id: str, text: str, **more: Any) -> dict[str, Any]:
    here = {"threadId": thread_id, "expectedTurnId": turn_id}
    return {**here, "input": text_input(text), **more}


def completed(messages: Sequence[Any]) -> list[tuple[str, str]]:
    """Return kind and text of the items that were completed."""
    items = [m["params"]["item"] for m in messages if m.get("method") == "item/completed"]
    return [(item["type"], item.get("text") or said(item)) for item in items]


def said(item: dict[str, Any]) -> str:
    if item["type"] == "userMessage":
        return str(item["content"][0]["text"])
    return "".join(item.get("summary", ()))


@claim("turns:join", "turns:steer", "inject:mid-turn")
async def test_input_during_a_turn_cuts_the_answer_off_and_joins_in_its_order(
    tmp_path: Path,
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        gates = Gate(), Gate()
        served.model.scripts += [[*says("first")[:3], gate] for gate in gates]
        turn_id = await start_turn(client, thread_id, "go")
        await gates[0].wait_until_reached()
        here = {"threadId": thread_id}
        wrong = await client.refusal("turn/steer", steering(thread_id, "x", "no"))
        assert wrong.message == f"expected active turn id `x` but found `{turn_id}`"
        assert wrong.data == {"code": "turnIdMismatch", "expected": "x", "found": turn_id}
        injected = {**here, "items": [raw("injected"), raw("too")]}
        assert await client.call("thread/inject_items", injected) == {}
        steer = steering(thread_id, turn_id, "steered", clientUserMessageId="c")
        assert await client.call("turn/steer", steer) == {"turnId": turn_id}
        await gates[1].wait_until_reached()
        assert await start_turn(client, thread_id, "joined") == turn_id
        messages = await client.until("turn/completed")
        for gate in gates:
            gate.opened.set()
        assert completed(messages) == [
            ("userMessage", "go"),
            ("userMessage", "steered"),
            ("userMessage", "joined"),
            ("agentMessage", "ok"),
        ]
        names = [m["params"]["item"].get("clientId") for m in messages if "item" in m["params"]]
        assert names.count("c") == 2, "the start and the end of one item"
        assert served.model.inputs() == [
            GO,
            ("developer", "injected"),
            ("developer", "too"),
            STEERED,
            ("user", "joined"),
        ]
        assert len(served.model.requests) == 3


@claim("turns:join-options")
async def test_a_start_that_joins_changes_the_settings_of_the_thread_and_not_of_the_turn(
    tmp_path: Path,
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        gates = Gate(), Gate()
        served.model.scripts += [[*says("first")[:3], gate] for gate in gates]
        turn_id = await start_turn(
            client, thread_id, "go", effort="low", responsesapiClientMetadata={"a": "1", "b": "1"}
        )
        await gates[0].wait_until_reached()
        patched = {"responsesapiClientMetadataPatch": {"b": "2"}}
        assert await start_turn(client, thread_id, "patched", **patched) == turn_id
        await gates[1].wait_until_reached()
        for_turn = {"serviceTierForTurn": "flex", "turnTrigger": "t", "parentTurnId": "p"}
        replaced = {"effort": "high", "responsesapiClientMetadata": {"c": "3"}, **for_turn}
        assert await start_turn(client, thread_id, "replaced", **replaced) == turn_id
        await client.wait_for(
            "thread/settings/updated", lambda p: p["threadSettings"]["effort"] == "high"
        )
        await client.until("turn/completed")
        for gate in gates:
            gate.opened.set()
        await client.turn(thread_id, "next")
        sent = [
            (body["reasoning"]["effort"], body.get("client_metadata"), body.get("service_tier"))
            for body in served.model.requests
        ]
        assert sent == [
            ("low", {"a": "1", "b": "1"}, None),
            ("low", {"a": "1", "b": "2"}, None),
            ("low", {"c": "3"}, None),
            ("high", None, None),
        ]


@claim("turns:join-schema")
@pytest.mark.parametrize("begun", [None, {"type": "object"}])
async def test_a_start_that_joins_with_another_output_schema_is_refused_as_a_whole(
    tmp_path: Path, begun: dict[str, Any] | None
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        gate = Gate()
        served.model.scripts += [[*says("first")[:3], gate]]
        turn_id = await start_turn(client, thread_id, "go", outputSchema=begun, effort="low")
        await gate.wait_until_reached()
        other = {"threadId": thread_id, "input": text_input("other"), "effort": "high"}
        refused = await client.refusal("turn/start", {**other, "outputSchema": {"type": "string"}})
        rule = "must be that of the running turn, or absent"
        assert (refused.code, refused.data) == (
            -32602,
            {"code": "invalidParams", "field": "outputSchema", "rule": rule},
        )
        assert await start_turn(client, thread_id, "joined", outputSchema=begun) == turn_id
        await client.until("turn/completed")
        gate.opened.set()
        await client.turn(thread_id, "next")
        sent = [
            (body.get("text", {}).get("format", {}).get("schema"), body["reasoning"]["effort"])
            for body in served.model.requests
        ]
        assert sent == [(begun, "low"), (begun, "low"), (None, "low")]
        assert ("user", "other") not in served.model.inputs()


@claim("turns:steer-cuts")
@pytest.mark.parametrize("events", range(len(EVERYTHING) + 1))
async def test_a_steered_answer_keeps_what_is_complete_and_drops_what_is_not(
    tmp_path: Path, events: int
) -> None:
    done = [e["item"] for e in EVERYTHING[:events] if e["type"] == "response.output_item.done"]
    kinds = [item["type"] for item in done]
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        gate = Gate()
        served.model.scripts += [[*EVERYTHING[:events], SEEN, gate], says("ok", item_id="msg_3")]
        turn_id = await start_turn(client, thread_id, "go")
        await client.wait_for("item/started", lambda p: p["item"]["id"] == "rs_seen")
        await client.call("turn/steer", steering(thread_id, turn_id, "steered"))
        messages = await client.until("turn/completed")
        assert not gate.opened.is_set()
        gate.opened.set()
        assert completed(messages)[-2:] == [("userMessage", "steered"), ("agentMessage", "ok")]
        assert messages[-1]["params"]["turn"]["status"] == "completed"
        kept = [i for i in served.model.items() if i["type"] not in ("message", *OUTPUTS)]
        assert kept == [item for item in done if item["type"] != "message"]
        answered = [("assistant", "whole")] * kinds.count("message")
        assert served.model.inputs() == [GO, *answered, STEERED]
        outputs = [i["call_id"] for i in served.model.items() if i["type"] in OUTPUTS]
        assert outputs == ["call_1"] * kinds.count("function_call")
        assert served.model.items()[-1]["content"][-1]["text"] == "steered"
        read = await client.call("thread/read", {"threadId": thread_id, "includeTurns": True})
        (turn,) = read["thread"]["turns"]
        shown = [item["id"] for item in turn["items"] if item["type"] != "userMessage"]
        assert shown == [*(item["id"] for item in done if item is not CALL), "msg_3"]


OUTPUTS = ("function_call_output",)


@claim("turns:steer-cuts")
async def test_who_joins_after_a_steer_is_not_shown_what_was_dropped(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client, served.client() as other:
        thread_id = await client.start_thread()
        gates = Gate(), Gate()
        served.model.scripts += [[*says("first")[:3], gates[0]], [gates[1], *says("last")]]
        turn_id = await start_turn(client, thread_id, "go")
        await client.wait_for("item/agentMessage/delta")
        await client.call("turn/steer", steering(thread_id, turn_id, "steered"))
        await gates[1].wait_until_reached()
        resumed = await other.call("thread/resume", {"threadId": thread_id})
        (turn,) = resumed["thread"]["turns"]
        assert [said(item) for item in turn["items"]] == ["go", "steered"]
        for gate in gates:
            gate.opened.set()
        await other.wait_for("turn/completed")


@claim("turns:steer-cuts")
async def test_several_steers_at_once_come_in_their_order_and_each_once(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        gate = Gate()
        served.model.choose = lambda body: (
            [*says("part")[:3], gate] if "steered 9" not in str(body["input"]) else says("ok")
        )
        turn_id = await start_turn(client, thread_id, "go")
        await client.wait_for("item/agentMessage/delta")
        texts = [f"steered {number}" for number in range(10)]
        for text in texts:
            await client.request("turn/steer", steering(thread_id, turn_id, text))
        messages = await client.until("turn/completed")
        gate.opened.set()
        assert [text for kind, text in completed(messages) if kind == "userMessage"] == texts
        assert served.model.inputs() == [GO, *(("user", text) for text in texts)]


async def test_a_steer_during_a_call_waits_for_the_call(tmp_path: Path) -> None:
    held = tmp_path / "held"
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread(sandbox="danger-full-access", approvalPolicy="never")
        wait = f"until test -e {held}; do sleep 0.05; done; echo over"
        served.model.scripts += [calls({"name": "exec_command", "arguments": {"cmd": wait}})]
        turn_id = await start_turn(client, thread_id, "go")
        await client.wait_for("item/started", lambda p: p["item"]["type"] == "commandExecution")
        await client.call("turn/steer", steering(thread_id, turn_id, "steered"))
        assert len(served.model.requests) == 1
        held.touch()
        messages = await client.until("turn/completed")
        assert [kind for kind, _ in completed(messages)] == [
            "commandExecution",
            "userMessage",
            "agentMessage",
        ]
        assert [item["type"] for item in served.model.items()] == [
            "message",
            "function_call",
            "function_call_output",
            "message",
        ]


@claim("turns:steer-cuts")
async def test_input_that_comes_while_a_failed_request_waits_is_in_the_next_one(
    tmp_path: Path,
) -> None:
    config = "\n[model_providers.patient]\nrequest_max_retries = 0\nstream_max_retries = 2\n"
    async with serve(tmp_path, config=config) as served, served.client() as client:
        url = {"model_providers.patient.base_url": served.model.url}
        thread_id = await client.start_thread(config={"model_provider": "patient", **url})
        served.model.scripts += [[*says("part")[:3], BREAK]]
        turn_id = await start_turn(client, thread_id, "go")
        await client.wait_for("error", lambda p: p["willRetry"])
        await client.call("turn/steer", steering(thread_id, turn_id, "steered"))
        await client.wait_for("turn/completed")
        assert len(served.model.requests) == 2
        assert served.model.inputs() == [GO, STEERED]


@claim("turns:steer-none")
async def test_without_a_turn_there_is_nothing_to_steer_or_interrupt(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        here = {"threadId": thread_id}
        steer = await client.refusal("turn/steer", {**here, "expectedTurnId": "x", "input": []})
        assert (steer.code, steer.message) == (-32600, "no active turn to steer")
        interrupt = await client.refusal("turn/interrupt", {**here, "turnId": "x"})
        assert (interrupt.code, interrupt.message) == (-32600, "no active turn to interrupt")
        assert interrupt.data == {"code": "noActiveTurn"}
        assert await client.call("turn/interrupt", {**here, "turnId": ""}) == {}


@claim("turns:interrupt")
async def test_an_interrupt_is_answered_at_once_and_ends_the_turn(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client, served.client() as other:
        thread_id = await client.start_thread()
        gate, second = Gate(), Gate()
        served.model.scripts += [[*says("part")[:3], gate], [*says("part")[:3], second]]
        turn_id = await start_turn(client, thread_id, "go")
        await client.wait_for("item/agentMessage/delta")
        here = {"threadId": thread_id}
        wrong = await client.refusal("turn/interrupt", {**here, "turnId": "other"})
        assert wrong.data["code"] == "turnIdMismatch"
        await client.call("turn/steer", steering(thread_id, turn_id, "steered"))
        await client.wait_for("item/agentMessage/delta")
        await client.request("turn/interrupt", {**here, "turnId": turn_id})
        messages = await client.until("turn/completed")
        gate.opened.set()
        second.opened.set()
        assert messages[0].get("result") == {}
        assert [m["method"] for m in messages[1:]] == ["thread/status/changed", "turn/completed"]
        turn = messages[-1]["params"]["turn"]
        assert (turn["status"], turn["items"], turn["itemsView"]) == (
            "interrupted",
            [],
            "notLoaded",
        )
        read = await other.call("thread/read", {**here, "includeTurns": True})
        (stored,) = read["thread"]["turns"]
        assert (stored["status"], [item["type"] for item in stored["items"]]) == (
            "interrupted",
            ["userMessage", "userMessage"],
        )
        await client.turn(thread_id, "after")
        assert served.model.inputs() == [
            GO,
            STEERED,
            ("developer", INTERRUPTED),
            ("user", "after"),
        ]


@claim("turns:interrupt-from-answer")
async def test_a_turn_can_be_interrupted_from_the_moment_it_was_answered(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        for _ in range(10):
            turn_id = await start_turn(client, thread_id, "go")
            await client.request("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
            messages = await client.until("turn/completed")
            end = messages[-1]["params"]["turn"]
            assert (end["id"], end["status"] in ("interrupted", "completed")) == (turn_id, True)


async def test_a_turn_without_input_runs(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        await client.call("turn/start", {"threadId": thread_id, "input": []})
        messages = await client.until("turn/completed")
        assert [m["params"]["item"]["type"] for m in messages if m["method"] == "item/started"] == [
            "agentMessage"
        ]


@claim("turns:outlive-clients")
async def test_a_turn_goes_on_without_its_client(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as other:
        gate = Gate()
        script = says("still here")
        served.model.scripts.append([*script[:2], gate, *script[2:]])
        async with served.client() as client:
            thread_id = await client.start_thread()
            await start_turn(client, thread_id, "go")
            await gate.wait_until_reached()
        await other.call("thread/resume", {"threadId": thread_id})
        gate.opened.set()
        end = await other.wait_for("turn/completed")
        assert end["params"]["turn"]["items"][0]["text"] == "still here"


@claim("turns:slow-neighbour")
async def test_a_slow_turn_delays_nobody_else(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client, served.client() as other:
        slow, quick = await client.start_thread(), await other.start_thread()
        gate = Gate()
        served.model.scripts.append([gate, *says("late")])
        await start_turn(client, slow, "go")
        await gate.wait_until_reached()
        assert (await other.turn(quick, "hi"))["status"] == "completed"
        read = await client.call("thread/read", {"threadId": slow})
        assert read["thread"]["status"] == {"type": "active", "activeFlags": []}
        gate.opened.set()
        await client.wait_for("turn/completed")


@claim("turns:steer-empty")
async def test_a_steer_without_input_is_refused_and_a_start_has_the_model_go_on(
    tmp_path: Path,
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        gate = Gate()
        served.model.scripts.append([gate, *says("one")])
        thread_id = await client.start_thread()
        turn_id = await start_turn(client, thread_id, "go")
        nothing = {**steering(thread_id, turn_id, ""), "input": []}
        refused = await client.refusal("turn/steer", nothing)
        assert (refused.code, refused.message) == (-32600, "input must not be empty")
        assert refused.data == {"code": "emptyInput", "field": "input"}
        # Which turn is meant is looked at first.
        refused = await client.refusal("turn/steer", {**nothing, "expectedTurnId": "other"})
        assert refused.data["code"] == "turnIdMismatch"
        refused = await client.refusal("turn/start", {"threadId": thread_id, "input": []})
        assert refused.data == {"code": "emptyInput", "field": "input"}
        gate.opened.set()
        assert (await client.wait_for("turn/completed"))["params"]["turn"]["status"] == "completed"
        refused = await client.refusal("turn/steer", nothing)
        assert refused.data == {"code": "noActiveTurn"}
        await client.call("turn/start", {"threadId": thread_id, "input": []})
        assert (await client.wait_for("turn/completed"))["params"]["turn"]["status"] == "completed"
