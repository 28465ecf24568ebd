"""turns: input during a turn, interrupting, and turns without their client."""

from pathlib import Path

from app_server.turns.model.prompt.request import INTERRUPTED
from tests.support.harness import claim, serve
from tests.support.model import Gate, says
from tests.support.turns import raw, start_turn, text_input


@claim("turns:join", "turns:steer", "inject:mid-turn")
async def test_input_during_a_turn_joins_it_at_the_next_request_in_its_order(
    tmp_path: Path,
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        gate = Gate()
        script = says("first")
        served.model.scripts.append([*script[:2], gate, *script[2:]])
        turn_id = await start_turn(client, thread_id, "go")
        await gate.wait_until_reached()
        here = {"threadId": thread_id}
        wrong = await client.refusal(
            "turn/steer", {**here, "expectedTurnId": "x", "input": text_input("no")}
        )
        assert wrong.message == f"expected active turn id `x` but found `{turn_id}`"
        assert wrong.data == {"code": "turnIdMismatch", "expected": "x", "found": turn_id}
        steered = await client.call(
            "turn/steer",
            {
                **here,
                "expectedTurnId": turn_id,
                "input": text_input("steered"),
                "clientUserMessageId": "c",
            },
        )
        assert steered == {"turnId": turn_id}
        injected = {**here, "items": [raw("injected"), raw("too")]}
        assert await client.call("thread/inject_items", injected) == {}
        assert await start_turn(client, thread_id, "joined") == turn_id
        await client.call("turn/steer", {**here, "expectedTurnId": turn_id, "input": []})
        gate.opened.set()
        messages = await client.until("turn/completed")
        done = [m["params"]["item"] for m in messages if m["method"] == "item/completed"]
        assert [
            (item["type"], item.get("text") or item["content"][0]["text"]) for item in done
        ] == [
            ("userMessage", "go"),
            ("agentMessage", "first"),
            ("userMessage", "steered"),
            ("userMessage", "joined"),
            ("agentMessage", "ok"),
        ]
        assert done[2]["clientId"] == "c"
        assert served.model.inputs() == [
            ("user", "go"),
            ("assistant", "first"),
            ("user", "steered"),
            ("developer", "injected"),
            ("developer", "too"),
            ("user", "joined"),
        ]
        assert len(served.model.requests) == 2


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
        gate = Gate()
        served.model.scripts.append([*says("part")[:3], gate])
        turn_id = await start_turn(client, thread_id, "go")
        await client.wait_for("item/agentMessage/delta")
        here = {"threadId": thread_id}
        wrong = await client.refusal("turn/interrupt", {**here, "turnId": "other"})
        assert wrong.data["code"] == "turnIdMismatch"
        steer = {**here, "expectedTurnId": turn_id, "input": text_input("steered")}
        await client.call("turn/steer", steer)
        await client.request("turn/interrupt", {**here, "turnId": turn_id})
        messages = await client.until("turn/completed")
        gate.opened.set()
        assert messages[0].get("result") == {}
        assert [m["method"] for m in messages[1:]] == [
            "item/started",
            "item/completed",
            "thread/status/changed",
            "turn/completed",
        ]
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
            ("user", "go"),
            ("developer", INTERRUPTED),
            ("user", "steered"),
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
