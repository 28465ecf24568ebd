"""Coming back to a thread: what was missed is told again, or what there is now is shown."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from app_server.threads.files.index.listing import Listing
from app_server.threads.rows import ThreadPage, ThreadQuery
from tests.support.harness import WAIT_S, WireClient, claim, serve
from tests.support.model import Gate, ScriptedModel, says
from tests.support.threads.seen import deltas, merged, numbered

GO = [{"type": "text", "text": "go"}]


def gated(*parts: str) -> tuple[list[Any], list[Gate]]:
    """Script a message with a gate in front of each part but the first."""
    gates = [Gate() for _ in parts[1:]]
    events = says(*parts)
    first = next(i for i, event in enumerate(events) if event.get("delta") == parts[0])
    script = events[: first + 1]
    for gate, event in zip(gates, events[first + 1 :], strict=False):
        script += [gate, event]
    return script + events[first + len(parts) :], gates


async def begin_turn(client: WireClient, model: ScriptedModel, thread_id: str, *parts: str) -> Any:
    """Start a turn that says the parts, and return its id and gates."""
    script, gates = gated(*parts)
    model.scripts.append(script)
    result = await client.call("turn/start", {"threadId": thread_id, "input": GO})
    return result["turn"]["id"], gates


async def start(client: WireClient, **params: Any) -> Any:
    """Start a thread and return the answer."""
    answer = await client.call("thread/start", params)
    await client.wait_for("thread/started")
    return answer


def is_delta(message: Any) -> bool:
    return bool(message.get("method") == "item/agentMessage/delta")


@claim("replay:missed", "replay:numbers")
async def test_a_client_that_was_away_is_sent_what_it_missed(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as steady:
        started = await start(steady)
        thread_id, stream = started["thread"]["id"], started["streamId"]
        async with served.client() as away:
            joined = await away.call("thread/resume", {"threadId": thread_id})
            assert joined["streamId"] == stream
            assert "resyncRequired" not in joined
            _, gates = await begin_turn(steady, served.model, thread_id, "a", "b", "c")
            before = numbered(await away.until("item/agentMessage/delta"))
        gates[0].opened.set()
        await gates[1].wait_until_reached()
        async with served.client() as away:
            known = {"streamId": stream, "afterSeq": before[-1]["seq"]}
            answer = await away.call("thread/resume", {"threadId": thread_id, **known})
            assert (answer["resyncRequired"], answer["thread"]["turns"]) == (False, [])
            assert (answer["streamId"], answer["seq"]) == (stream, known["afterSeq"])
            gates[1].opened.set()
            after = numbered(await away.until("turn/completed"))
        everything = numbered(await steady.until("turn/completed"))
    assert [m["seq"] for m in everything] == list(range(1, len(everything) + 1))
    assert merged(before + after) == merged(everything)
    assert deltas(everything) == "abc"


@claim("replay:resync")
@pytest.mark.parametrize("why", ["stream", "future"])
async def test_a_client_whose_place_is_not_known_is_shown_what_there_is_now(
    tmp_path: Path, why: str
) -> None:
    async with serve(tmp_path) as served, served.client() as steady:
        started = await start(steady)
        thread_id, stream = started["thread"]["id"], started["streamId"]
        await steady.turn(thread_id, "first")
        turn_id, gates = await begin_turn(steady, served.model, thread_id, "a", "b")
        await gates[0].wait_until_reached()
        place = {"stream": ("other", 1), "future": (stream, 10_000)}[why]
        async with served.client() as client:
            known = {"streamId": place[0], "afterSeq": place[1], "excludeTurns": True}
            answer = await client.call("thread/resume", {"threadId": thread_id, **known})
            assert answer["resyncRequired"] is True
            first, running = answer["thread"]["turns"]
            assert (first["status"], running["id"]) == ("completed", turn_id)
            shown = [(item["type"], item.get("text")) for item in running["items"]]
            assert shown == [("userMessage", None), ("agentMessage", "a")]
            gates[0].opened.set()
            after = numbered(await client.until("turn/completed"))
            assert answer["seq"] + 1 == after[0]["seq"]
            assert deltas(after) == "b"


@claim("replay:restart")
async def test_after_a_restart_a_client_is_shown_what_there_is_now(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        started = await start(client)
        thread_id = started["thread"]["id"]
        await client.turn(thread_id, "hello")
    async with serve(tmp_path) as served, served.client() as client:
        known = {"streamId": started["streamId"], "afterSeq": 1}
        answer = await client.call("thread/resume", {"threadId": thread_id, **known})
        assert answer["resyncRequired"] is True
        assert answer["streamId"] != started["streamId"]
        assert [turn["status"] for turn in answer["thread"]["turns"]] == ["completed"]


@claim("replay:bounds")
async def test_what_is_beyond_the_bound_is_not_sent_again(tmp_path: Path) -> None:
    config = "thread_events_kept = 256\n"
    async with serve(tmp_path, config=config) as served, served.client() as client:
        started = await start(client)
        thread_id, stream = started["thread"]["id"], started["streamId"]
        served.model.scripts.append(says(*(f"{n} " for n in range(600))))
        await client.turn(thread_id, "much")
        resume = {"threadId": thread_id, "streamId": stream}
        async with served.client() as late:
            answer = await late.call("thread/resume", {**resume, "afterSeq": 1})
            assert answer["resyncRequired"] is True
            last = answer["seq"]
        async with served.client() as late:
            answer = await late.call("thread/resume", {**resume, "afterSeq": last - 100})
            assert answer["resyncRequired"] is False


async def test_a_number_alone_is_refused(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        error = await client.refusal("thread/resume", {"threadId": thread_id, "afterSeq": 1})
        assert (error.code, error.data["field"]) == (-32602, "streamId")


@claim("replay:opt-in")
async def test_clients_without_the_opt_in_see_no_numbers(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client(experimental=False) as client:
        answer = await client.call("thread/start", {})
        assert answer.keys() & {"streamId", "seq"} == set()
        served.model.scripts.append(says("a"))
        await client.call("turn/start", {"threadId": answer["thread"]["id"], "input": GO})
        messages = await client.until("turn/completed")
        assert numbered(messages) == []
        error = await client.refusal(
            "thread/resume", {"threadId": "t", "streamId": "s", "afterSeq": 0}
        )
        assert error.data["code"] == "experimentalApiRequired"


def fold(turn: Any, messages: list[Any]) -> dict[str, str]:
    """Give the texts of a running turn's messages after some more events, by item."""
    found = {item["id"]: item["text"] for item in turn["items"] if item["type"] == "agentMessage"}
    for message in messages:
        params = message["params"]
        match message["method"]:
            case "item/started" if params["item"]["type"] == "agentMessage":
                assert params["item"]["id"] not in found, "told twice"
                found[params["item"]["id"]] = params["item"]["text"]
            case "item/agentMessage/delta":
                found[params["itemId"]] += params["delta"]
            case "item/completed" if params["item"]["type"] == "agentMessage":
                assert found[params["item"]["id"]] == params["item"]["text"]
    return found


@claim("threads:join-running")
@pytest.mark.parametrize("experimental", [True, False])
async def test_joining_a_running_turn_shows_its_items_so_far_and_then_the_rest(
    tmp_path: Path, experimental: bool
) -> None:
    async with serve(tmp_path) as served, served.client() as steady:
        thread_id = await steady.start_thread()
        turn_id, gates = await begin_turn(steady, served.model, thread_id, "a", "b", "c")
        await gates[0].wait_until_reached()
        gates[0].opened.set()
        await gates[1].wait_until_reached()
        await steady.wait_for("item/agentMessage/delta", lambda p: p["delta"] == "b")
        async with served.client(experimental=experimental) as late:
            answer = await late.call("thread/resume", {"threadId": thread_id})
            (running,) = answer["thread"]["turns"]
            assert (running["id"], running["status"]) == (turn_id, "inProgress")
            assert fold(running, []) == {"msg_1": "ab"}
            gates[1].opened.set()
            messages = [
                message
                for message in await late.until("turn/completed")
                if message["method"].startswith("item/")
            ]
            assert [message["method"] for message in messages] == [
                "item/agentMessage/delta",
                "item/completed",
            ]
            assert fold(running, messages) == {"msg_1": "abc"}
        # A turn that has ended has no open items.
        answer = await steady.call("thread/resume", {"threadId": thread_id})
        items = answer["thread"]["turns"][0]["items"]
        assert [item["type"] for item in items] == ["userMessage", "agentMessage"]


@claim("threads:join-running")
async def test_reasoning_so_far_is_shown_part_by_part(tmp_path: Path) -> None:
    gate = Gate()
    part = {"item_id": "r", "summary_index": 0}
    more = {"item_id": "r", "summary_index": 1}
    script = [
        {"type": "response.output_item.added", "item": {"type": "reasoning", "id": "r"}},
        {"type": "response.reasoning_summary_part.added", **part},
        {"type": "response.reasoning_summary_text.delta", **part, "delta": "one"},
        {"type": "response.reasoning_summary_part.added", **more},
        {"type": "response.reasoning_summary_text.delta", **more, "delta": "t"},
        {"type": "response.reasoning_summary_text.delta", **more, "delta": "wo"},
        {
            "type": "response.reasoning_text.delta",
            "item_id": "r",
            "content_index": 0,
            "delta": "raw",
        },
        gate,
        *says("done"),
    ]
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        served.model.scripts.append(script)
        await client.call("turn/start", {"threadId": thread_id, "input": GO})
        await client.wait_for("item/reasoning/textDelta")
        async with served.client() as late:
            answer = await late.call("thread/resume", {"threadId": thread_id})
            reasoning = answer["thread"]["turns"][0]["items"][1]
            assert (reasoning["summary"], reasoning["content"]) == (["one", "two"], ["raw"])
        gate.opened.set()
        await client.wait_for("turn/completed")


@claim("threads:join-running")
async def test_reasoning_without_a_place_is_sent_and_comes_whole_with_its_item(
    tmp_path: Path,
) -> None:
    gate = Gate()
    item = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "why"}]}
    here = {"item_id": "r", "summary_index": -1}
    script = [
        {"type": "response.output_item.added", "item": {**item, "summary": []}},
        {"type": "response.reasoning_summary_part.added", **here},
        {"type": "response.reasoning_summary_text.delta", **here, "delta": "why"},
        {
            "type": "response.reasoning_text.delta",
            "item_id": "r",
            "content_index": -(2**63),
            "delta": "raw",
        },
        gate,
        {"type": "response.output_item.done", "item": item},
        *says("done"),
    ]
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        served.model.scripts.append(script)
        turn_id = (await client.call("turn/start", {"threadId": thread_id, "input": GO}))["turn"][
            "id"
        ]
        here = {"threadId": thread_id, "turnId": turn_id, "itemId": "r"}
        assert [
            (await client.wait_for(f"item/reasoning/{event}"))["params"]
            for event in ("summaryPartAdded", "summaryTextDelta", "textDelta")
        ] == [
            {**here, "summaryIndex": -1},
            {**here, "summaryIndex": -1, "delta": "why"},
            {**here, "contentIndex": -(2**63), "delta": "raw"},
        ]
        async with served.client() as late:
            answer = await late.call("thread/resume", {"threadId": thread_id})
            reasoning = answer["thread"]["turns"][0]["items"][1]
            assert (reasoning["summary"], reasoning["content"]) == ([], [])
        gate.opened.set()
        turn = (await client.wait_for("turn/completed"))["params"]["turn"]
        assert (turn["status"], turn["error"]) == ("completed", None)
        read = await client.call("thread/read", {"threadId": thread_id, "includeTurns": True})
        assert read["thread"]["turns"][0]["items"][1]["summary"] == ["why"]


@claim("threads:join-running")
async def test_an_answer_that_waits_for_its_batch_misses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, go_on = anyio.Event(), anyio.Event()

    async def list_page(self: Listing, query: ThreadQuery) -> ThreadPage:
        asked.set()
        await go_on.wait()
        return ThreadPage([], None, None)

    monkeypatch.setattr(Listing, "page", list_page)
    async with serve(tmp_path) as served, served.client() as steady:
        thread_id = await steady.start_thread()
        turn_id, gates = await begin_turn(steady, served.model, thread_id, "a", "b")
        await gates[0].wait_until_reached()
        async with served.client() as late:
            # A batch is answered when its slowest request is; the turn ends before.
            resume = {"id": 101, "method": "thread/resume", "params": {"threadId": thread_id}}
            await late.send([resume, {"id": 102, "method": "thread/list", "params": {}}])
            with anyio.fail_after(WAIT_S):
                await asked.wait()
            gates[0].opened.set()
            everything = numbered(await steady.until("turn/completed"))
            go_on.set()
            batch = await late.receive()
            while not isinstance(batch, list):
                batch = await late.receive()
            # Answers of a batch are in no order.
            answer = next(one["result"] for one in batch if one["id"] == 101)
            missed = [message for message in everything if message["seq"] > answer["seq"]]
            # On a busy machine the turn may end before the thread is resumed.
            after = numbered(await late.until("turn/completed")) if missed else []
    assert answer["thread"]["turns"][0]["id"] == turn_id
    assert merged(after) == merged(missed)
