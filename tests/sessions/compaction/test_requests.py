"""thread/compact/start: events, usage, failures, interrupts, input meanwhile."""

import json
from pathlib import Path
from typing import Any

import pytest

from app_server.models.prompt.request import INTERRUPTED, message
from app_server.sessions.session import ThreadSession
from app_server.turns.model_exchange import MAX_TRIMS, PROMPT
from tests.support.harness import claim, methods_of, serve
from tests.support.model import BREAK, Gate, Refusal, ScriptedModel, says
from tests.support.threads.compaction import (
    TOO_LONG,
    compact,
    stored,
    summed_up,
    talked,
    text,
)


@claim("compact:start", "compact:events")
async def test_a_summary_takes_the_place_of_what_the_model_sees(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await talked(served, client, "one", "two")
        served.model.scripts.append(says("the ", "summary"))
        told = await compact(client, thread_id)
        assert methods_of(told) == [
            "answer",
            "thread/status/changed",
            "turn/started",
            "item/started",
            "thread/tokenUsage/updated",
            "thread/tokenUsage/updated",
            "item/completed",
            "thread/readState/changed",
            "thread/status/changed",
            "turn/completed",
        ]
        assert told[0]["result"] == {}
        item = told[6]["params"]["item"]
        assert (item["type"], item["id"]) == (
            "contextCompaction",
            told[3]["params"]["item"]["id"],
        )
        turn = told[-1]["params"]["turn"]
        assert (turn["status"], turn["items"]) == ("completed", [])
        request = served.model.requests[-1]
        assert served.model.inputs() == [
            ("user", "one"),
            ("assistant", "ok"),
            ("user", "two"),
            ("assistant", "ok"),
            ("user", PROMPT),
        ]
        assert (request["tools"], request["client_metadata"]) == (
            [],
            {"request_kind": "compaction"},
        )
        await client.turn(thread_id, "three")
        assert served.model.inputs() == [
            ("user", "one"),
            ("user", "two"),
            summed_up("the summary"),
            ("user", "three"),
        ]


@claim("compact:usage")
async def test_the_account_counts_the_summary_and_the_context_is_estimated(tmp_path: Path) -> None:
    async with (
        serve(tmp_path, config="model_context_window = 1000") as served,
        served.client() as client,
    ):
        thread_id = await talked(served, client, "one")
        told = await compact(client, thread_id)
        counts = [
            message["params"]["tokenUsage"]
            for message in told
            if message.get("method") == "thread/tokenUsage/updated"
        ]
        call, context = counts
        assert (call["total"]["totalTokens"], call["last"]["totalTokens"]) == (30, 15)
        assert context["total"] == call["total"]
        estimate = context["last"]["totalTokens"]
        assert context["last"] == {
            "totalTokens": estimate,
            "inputTokens": 0,
            "cachedInputTokens": 0,
            "cacheWriteInputTokens": 0,
            "outputTokens": 0,
            "reasoningOutputTokens": 0,
        }
        assert context["modelContextWindow"] == 1000
        await client.turn(thread_id, "two")
        sent = served.model.requests[-1]
        size = len(json.dumps([sent["instructions"], sent["tools"], sent["input"]])) / 4
        assert estimate == pytest.approx(size, rel=0.2)


@claim("compact:clients-see-all")
async def test_clients_still_see_every_turn_and_item(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await talked(served, client, "one")
        await compact(client, thread_id)
        await client.turn(thread_id, "two")
        read = await client.call("thread/read", {"threadId": thread_id, "includeTurns": True})
        assert [[item["type"] for item in turn["items"]] for turn in read["thread"]["turns"]] == [
            ["userMessage", "agentMessage"],
            ["contextCompaction"],
            ["userMessage", "agentMessage"],
        ]


async def test_nothing_to_compact_completes_without_asking_the_model(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await talked(served, client)
        told = await compact(client, thread_id)
        assert methods_of(told)[3:5] == ["item/started", "item/completed"]
        assert told[-1]["params"]["turn"]["status"] == "completed"
        await client.turn(thread_id, "one")
        await compact(client, thread_id)
        asked = len(served.model.requests)
        await compact(client, thread_id)
        assert len(served.model.requests) == asked


@claim("compact:failure")
@pytest.mark.parametrize("script", [Refusal(400), [BREAK], says(" "), TOO_LONG])
async def test_a_compaction_that_fails_leaves_the_history_as_it_was(
    tmp_path: Path, script: Any
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await talked(served, client, "one")
        history = (await stored(served, thread_id)).history
        served.model.scripts += [script] * (MAX_TRIMS + 1)
        told = await compact(client, thread_id)
        assert methods_of(told)[-4:] == [
            "error",
            "thread/readState/changed",
            "thread/status/changed",
            "turn/completed",
        ]
        assert told[-1]["params"]["turn"]["status"] == "failed"
        assert (await stored(served, thread_id)).history == history
        served.model.scripts.clear()
        await client.turn(thread_id, "two")
        assert served.model.inputs() == [("user", "one"), ("assistant", "ok"), ("user", "two")]


@claim("compact:interrupt")
async def test_an_interrupted_compaction_leaves_the_history_as_it_was(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await talked(served, client, "one")
        gate = Gate()
        served.model.scripts.append([*says("half")[:3], gate])
        await client.call("thread/compact/start", {"threadId": thread_id})
        await gate.wait_until_reached()
        await client.call("turn/interrupt", {"threadId": thread_id, "turnId": ""})
        end = await client.wait_for("turn/completed")
        assert end["params"]["turn"]["status"] == "interrupted"
        gate.opened.set()
        await client.turn(thread_id, "two")
        assert served.model.inputs() == [
            ("user", "one"),
            ("assistant", "ok"),
            ("developer", INTERRUPTED),
            ("user", "two"),
        ]


@claim("compact:input-meanwhile")
async def test_what_comes_during_a_compaction_is_kept_and_comes_after_it(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await talked(served, client, "one")
        gate = Gate()
        served.model.scripts.append([gate, *says("sum")])
        await client.call("thread/compact/start", {"threadId": thread_id})
        await gate.wait_until_reached()
        turn = (await client.wait_for("turn/started"))["params"]["turn"]["id"]
        steered = await client.refusal(
            "turn/steer",
            {"threadId": thread_id, "expectedTurnId": turn, "input": text("steered")},
        )
        assert (steered.code, steered.message, steered.data) == (
            -32600,
            "cannot steer a compact turn",
            {
                "code": "activeTurnNotSteerable",
                "message": "cannot steer a compact turn",
                "codexErrorInfo": {"activeTurnNotSteerable": {"turnKind": "compact"}},
                "additionalDetails": None,
            },
        )
        injected = message("developer", "injected")
        await client.call("thread/inject_items", {"threadId": thread_id, "items": [injected]})
        joined = await client.call("turn/start", {"threadId": thread_id, "input": text("two")})
        assert joined["turn"]["id"] == turn
        queued = {"threadId": thread_id, "input": text("three"), "clientUserMessageId": "c"}
        await client.call("thread/queue/add", queued)
        # A second wish while one is granted changes nothing.
        assert await client.call("thread/compact/start", {"threadId": thread_id}) == {}
        gate.opened.set()
        ends = [await client.wait_for("turn/completed") for _ in range(2)]
        assert [end["params"]["turn"]["status"] for end in ends] == ["completed"] * 2
        assert served.model.inputs() == [
            ("user", "one"),
            summed_up("sum"),
            ("developer", "injected"),
            ("user", "two"),
            ("assistant", "ok"),
            ("user", "three"),
        ]


@claim("compact:stops-a-turn")
async def test_a_running_turn_is_stopped_for_a_compaction_and_the_queue_goes_on(
    tmp_path: Path,
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await talked(served, client, "one")
        gate = Gate()
        served.model.scripts += [[gate], says("sum")]
        await client.call("turn/start", {"threadId": thread_id, "input": text("slow")})
        await gate.wait_until_reached()
        queued = {"threadId": thread_id, "input": text("next"), "clientUserMessageId": "c"}
        await client.call("thread/queue/add", queued)
        await client.call("thread/compact/start", {"threadId": thread_id})
        ends = [await client.wait_for("turn/completed") for _ in range(3)]
        gate.opened.set()
        assert [end["params"]["turn"]["status"] for end in ends] == [
            "interrupted",
            "completed",
            "completed",
        ]
        assert served.model.inputs() == [
            ("user", "one"),
            ("user", "slow"),
            summed_up("sum"),
            ("user", "next"),
        ]


async def test_a_thread_that_is_not_loaded_cannot_be_compacted(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        nowhere = "01a1fd64-23eb-7893-8e05-e123f87ca8fc"
        error = await client.refusal("thread/compact/start", {"threadId": nowhere})
        assert (error.code, error.message) == (-32600, f"thread not found: {nowhere}")


@claim("compact:restart")
async def test_a_compacted_thread_is_the_same_after_it_was_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[ThreadSession] = []

    class Kept(ThreadSession):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            loaded.append(self)

    monkeypatch.setattr("app_server.sessions.session.ThreadSession", Kept)
    async with ScriptedModel().serve() as model:
        async with serve(tmp_path, model=model) as served, served.client() as client:
            thread_id = await talked(served, client, "one", "two")
            model.scripts.append(says("sum"))
            await compact(client, thread_id)
            await client.turn(thread_id, "three")
            (live,) = loaded
            assert await stored(served, thread_id) == live.log.state
        async with serve(tmp_path, model=model) as served, served.client() as client:
            await client.call("thread/resume", {"threadId": thread_id})
            await client.turn(thread_id, "four")
            assert model.inputs() == [
                ("user", "one"),
                ("user", "two"),
                summed_up("sum"),
                ("user", "three"),
                ("assistant", "ok"),
                ("user", "four"),
            ]
