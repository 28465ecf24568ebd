"""Compaction: on request and by itself, what the model sees after it, failures, bounds, memory."""

import json
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.config.values import ConfigError, read_config
from app_server.sessions.compaction_settings import (
    MAX_PROMPT_BYTES,
    read_compact_prompt,
)
from app_server.sessions.session import ThreadSession
from app_server.threads.log.loading import load_state
from app_server.threads.log.state.thread import ThreadState
from app_server.threads.store import ThreadStore
from app_server.turns.compaction import MAX_IN_A_ROW, MAX_TRIMS, PROMPT
from app_server.turns.model import offline
from app_server.turns.model.prompt.context import (
    CUT,
    KEPT_USER_TOKENS,
    MAX_SUMMARY_BYTES,
    MEDIA_TOKENS,
    NOT_KEPT,
    SUMMARY_PREFIX,
    compacted,
    estimated_tokens,
    is_summary,
    kept_tokens,
    split_unseen,
    without_oldest,
    worth_compacting,
)
from app_server.turns.model.prompt.request import INTERRUPTED, message
from app_server.turns.model.prompt.surroundings import FACTS, PERMISSIONS, kind_of
from protocol.items import ContextCompactionThreadItem
from tests.support.harness import (
    BREAK,
    USAGE,
    Gate,
    Refusal,
    ScriptedModel,
    Served,
    WireClient,
    calls,
    claim,
    methods_of,
    says,
    serve,
)


def text(words: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": words}]


def used(script: list[Any], tokens: int) -> list[Any]:
    """Let a scripted response say how many tokens it took."""
    usage = {**USAGE, "input_tokens": tokens - 5, "total_tokens": tokens}
    return [*script[:-1], {"type": "response.completed", "response": {"id": "r", "usage": usage}}]


TOO_LONG = [
    {
        "type": "response.failed",
        "response": {
            "id": "r",
            "error": {"code": "context_length_exceeded", "message": "too long"},
        },
    }
]


def summed_up(words: str) -> tuple[str, str]:
    return ("user", SUMMARY_PREFIX + words)


async def compact(client: WireClient, thread_id: str) -> list[dict[str, Any]]:
    """Compact a thread and return everything that was said about it."""
    await client.request("thread/compact/start", {"threadId": thread_id})
    return await client.until("turn/completed")


async def talked(served: Served, client: WireClient, *words: str) -> str:
    """Start a thread, have turns in it, and return its id."""
    thread_id = await client.start_thread()
    for each in words:
        await client.turn(thread_id, each)
    return thread_id


async def stored(served: Served, thread_id: str) -> ThreadState:
    path = Path(ThreadStore(served.home).shown_path(thread_id))
    return await anyio.to_thread.run_sync(load_state, path)


# On request.


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
        # Three of twelve: what the model was told of its surroundings, and one message.
        rest = [part for text in said[1:] for part in (("user", text), ("assistant", "ok"))]
        assert served.model.inputs() == [("assistant", "ok"), *rest, ("user", PROMPT)]


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
            assert await stored(served, thread_id) == live.thread.state
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


@claim("compact:prompt")
async def test_the_users_own_instructions_for_summaries_are_used(tmp_path: Path) -> None:
    (tmp_path / "sum.md").write_text("  from a file \n")
    for config, prompt in (
        ('compact_prompt = " mine "', "mine"),
        ('experimental_compact_prompt_file = "sum.md"', "from a file"),
        ('compact_prompt = "wins"\nexperimental_compact_prompt_file = "sum.md"', "wins"),
    ):
        async with serve(tmp_path, config=config) as served, served.client() as client:
            thread_id = await talked(served, client, "one")
            await compact(client, thread_id)
            assert served.model.inputs()[-1] == ("user", prompt)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot be read: No such file or directory"),
        (b" \n", "is empty"),
        (b"\xff", "is not UTF-8"),
        (b"x" * (MAX_PROMPT_BYTES + 1), f"is larger than {MAX_PROMPT_BYTES} bytes"),
    ],
)
async def test_a_prompt_file_that_is_no_prompt_is_an_error(
    tmp_path: Path, content: bytes | None, problem: str
) -> None:
    if content is not None:
        (tmp_path / "sum.md").write_bytes(content)
    (tmp_path / "config.toml").write_text('experimental_compact_prompt_file = "sum.md"')
    with pytest.raises(ConfigError) as caught:
        await read_compact_prompt(read_config(tmp_path / "config.toml").view())
    file = tmp_path / "sum.md"
    assert str(caught.value).endswith(f": experimental compact prompt file {file} {problem}")


async def test_a_prompt_file_whose_path_is_no_path_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('experimental_compact_prompt_file = "\\u0000"')
    with pytest.raises(ConfigError, match="cannot be read: embedded null byte"):
        await read_compact_prompt(read_config(tmp_path / "config.toml").view())


# What is kept.


def test_the_newest_words_of_the_user_are_kept_within_a_bound() -> None:
    long = "l" * (KEPT_USER_TOKENS * 4 - 100)
    image = {"type": "input_image", "image_url": "data:" + "x" * 1000}
    history = [
        message("user", "forgotten"),
        message("user", "cut " * 100),
        message("user", SUMMARY_PREFIX + "older"),
        message("user", long),
        message("developer", "told"),
        {"type": "message", "role": "user", "content": [image]},
        {"type": "reasoning", "summary": []},
    ]
    kept = [item["content"][0]["text"] for item in compacted(history, "new")]
    budget = 100 - len(NOT_KEPT.encode())
    assert kept == [
        ("cut " * 100)[: budget - len(CUT.encode())] + CUT,
        long,
        NOT_KEPT,
        SUMMARY_PREFIX + "new",
    ]
    assert [kept_tokens(limit) for limit in (None, 400, 1_000_000)] == [
        KEPT_USER_TOKENS,
        100,
        KEPT_USER_TOKENS,
    ]
    bound = compacted([message("user", "x" * 1000)], "new", keep=100)[0]["content"][0]["text"]
    assert len(bound.encode()) == 400
    (only,) = compacted([], "s" * (MAX_SUMMARY_BYTES + 1))
    assert len(only["content"][0]["text"]) < MAX_SUMMARY_BYTES + len(SUMMARY_PREFIX)
    assert is_summary(only)


def test_media_count_as_a_fixed_number_of_tokens() -> None:
    image = {"type": "input_image", "image_url": "data:" + "x" * 1_000_000}
    item = {"type": "message", "role": "user", "content": [image]}
    assert MEDIA_TOKENS < estimated_tokens([item, item]) - MEDIA_TOKENS < MEDIA_TOKENS + 100
    assert estimated_tokens([]) == 0


items = st.sampled_from(
    [
        message("user", "u"),
        message("developer", "d"),
        message("assistant", "a"),
        message("user", SUMMARY_PREFIX + "s"),
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": "o"},
    ]
)


@given(st.lists(items, max_size=12))
def test_what_the_model_has_not_seen_comes_whole_after_the_summary(history: list[Any]) -> None:
    seen, unseen = split_unseen(history)
    assert seen + unseen == history
    after = compacted(seen, "new", unseen)
    assert after[len(after) - len(unseen) :] == unseen
    (summary,) = [item for item in after if is_summary(item)]
    assert after.index(summary) == len(after) - len(unseen) - 1
    # A second compaction finds nothing to do.
    assert not worth_compacting(split_unseen(after)[0])


@given(st.lists(items, min_size=1, max_size=12))
def test_leaving_out_the_oldest_ends_and_leaves_no_output_without_its_call(
    history: list[Any],
) -> None:
    shorter = without_oldest(history)
    assert len(shorter) < len(history)
    called = False
    for item in shorter:
        called = called or item["type"] == "function_call"
        assert called or item["type"] != "function_call_output"


# The offline model.


@claim("compact:offline")
async def test_the_offline_model_sums_up_the_same_way_each_time(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread(modelProvider="offline")
        await client.turn(thread_id, "hello   there")
        await compact(client, thread_id)
        history = (await stored(served, thread_id)).history
        summary = (
            "This is the offline model: it repeats what it is told. The last messages, after 0 "
            "others:\n- user: hello there\n- assistant: This is the offline model: it repeats "
            "what it is told. You said: hello there"
        )
        assert [kind_of(item) for item in history[:2]] == [PERMISSIONS, FACTS]
        assert history[2:] == [
            message("user", "hello   there"),
            message("user", SUMMARY_PREFIX + summary),
        ]
        end = await client.turn(thread_id, "on")
        assert end["items"][0]["text"].endswith("You said: on")


def test_the_summary_of_the_offline_model_is_bounded() -> None:
    body = {
        "client_metadata": {"request_kind": "compaction"},
        "input": [message("user", "x" * 10_000) for _ in range(100)],
    }
    (content,) = offline.reply(body)["content"]
    assert len(content["text"]) < 2000
    assert "after 91 others" in content["text"]


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
