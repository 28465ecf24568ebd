"""turns: what clients hear of a turn, in its order."""

from pathlib import Path

from tests.support.harness import claim, serve
from tests.support.model import COMPLETED, says
from tests.support.turns import start_turn, text_input


@claim("turns:order", "turns:streamed", "turns:token-usage", "messages:emitted-at")
async def test_a_text_turn_says_everything_in_its_order(tmp_path: Path) -> None:
    async with serve(tmp_path, config="model_context_window = 1000") as served:
        async with served.client() as client:
            thread_id = await client.start_thread()
            served.model.scripts.append(says("Hel", "lo"))
            await client.request(
                "turn/start",
                {
                    "threadId": thread_id,
                    "input": text_input("hi"),
                    "clientUserMessageId": "mine",
                },
            )
            messages = await client.until("turn/completed")
        answer = messages[0]["result"]["turn"]
        turn_id = answer["id"]
        assert answer == {
            "id": turn_id,
            "rootTurnId": turn_id,
            "items": [],
            "itemsView": "notLoaded",
            "status": "inProgress",
            "error": None,
            "startedAt": None,
            "completedAt": None,
            "durationMs": None,
        }
        assert all(isinstance(message["emittedAtMs"], int) for message in messages[1:])
        here = {"threadId": thread_id, "turnId": turn_id}
        told = [(message["method"], message["params"]) for message in messages[1:]]
        user = told[2][1]["item"] | {"completedAtMs": told[3][1]["item"]["completedAtMs"]}
        agent = told[-5][1]["item"]
        usage = {
            "totalTokens": 15,
            "inputTokens": 10,
            "cachedInputTokens": 2,
            "cacheWriteInputTokens": 0,
            "outputTokens": 5,
            "reasoningOutputTokens": 1,
        }
        start = answer | {"startedAt": told[1][1]["turn"]["startedAt"]}
        end = told[-1][1]["turn"]
        assert told == [
            (
                "thread/status/changed",
                {"threadId": thread_id, "status": {"type": "active", "activeFlags": []}},
            ),
            ("turn/started", {"threadId": thread_id, "turn": start}),
            (
                "item/started",
                {
                    **here,
                    "item": user | {"completedAtMs": None},
                    "startedAtMs": user["startedAtMs"],
                },
            ),
            (
                "item/completed",
                {
                    **here,
                    "item": user,
                    "completedAtMs": user["completedAtMs"],
                    "contentTokenCount": None,
                },
            ),
            (
                "item/started",
                {
                    **here,
                    "item": agent | {"text": "", "completedAtMs": None},
                    "startedAtMs": agent["startedAtMs"],
                },
            ),
            ("item/agentMessage/delta", {**here, "itemId": "msg_1", "delta": "Hel"}),
            ("item/agentMessage/delta", {**here, "itemId": "msg_1", "delta": "lo"}),
            (
                "item/completed",
                {
                    **here,
                    "item": agent,
                    "completedAtMs": agent["completedAtMs"],
                    "contentTokenCount": None,
                },
            ),
            (
                "thread/tokenUsage/updated",
                {
                    **here,
                    "tokenUsage": {"total": usage, "last": usage, "modelContextWindow": 1000},
                },
            ),
            ("thread/readState/changed", told[-3][1]),
            ("thread/status/changed", {"threadId": thread_id, "status": {"type": "idle"}}),
            ("turn/completed", {"threadId": thread_id, "turn": end}),
        ]
        assert (user["clientId"], user["content"]) == (
            "mine",
            [{"type": "text", "text": "hi", "text_elements": []}],
        )
        assert (agent["id"], agent["text"]) == ("msg_1", "Hello")
        assert end == start | {
            "status": "completed",
            "items": [agent],
            "itemsView": "summary",
            "completedAt": end["completedAt"],
            "durationMs": end["durationMs"],
        }
        assert end["durationMs"] >= 0


async def test_usage_adds_up_and_a_model_may_not_count(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        uncounted = {"type": "response.completed", "response": {"id": "r"}}
        served.model.scripts += [says("a"), [*says("b")[:-1], uncounted], says("c")]
        for text in ("one", "two", "three"):
            await client.call("turn/start", {"threadId": thread_id, "input": text_input(text)})
            last = await client.until("turn/completed")
        (usage,) = (m["params"] for m in last if m.get("method") == "thread/tokenUsage/updated")
        assert usage["tokenUsage"]["total"]["totalTokens"] == 30
        assert usage["tokenUsage"]["last"]["totalTokens"] == 15
        assert usage["tokenUsage"]["modelContextWindow"] == 258_400


@claim("turns:reasoning")
async def test_reasoning_is_streamed_and_kept(tmp_path: Path) -> None:
    done = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "thin"}],
        "content": [{"type": "reasoning_text", "text": "raw"}, {"type": "strange"}],
        "encrypted_content": "E",
    }
    here = {"item_id": "rs_1"}
    script = [
        {"type": "response.output_item.added", "item": {**done, "summary": [], "content": None}},
        {"type": "response.reasoning_summary_part.added", "summary_index": 0, **here},
        {
            "type": "response.reasoning_summary_text.delta",
            "summary_index": 0,
            "delta": "thin",
            **here,
        },
        {"type": "response.reasoning_text.delta", "content_index": 0, "delta": "raw", **here},
        {"type": "response.output_item.done", "item": done},
        {"type": "response.something.new", "x": 1},
        *says("ok"),
    ]
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        served.model.scripts.append(script)
        turn_id = await start_turn(client, thread_id, "think")
        messages = await client.until("turn/completed")
        told = [(m["method"], m["params"]) for m in messages if "/reasoning/" in m["method"]]
        where = {"threadId": thread_id, "turnId": turn_id, "itemId": "rs_1"}
        assert told == [
            ("item/reasoning/summaryPartAdded", {**where, "summaryIndex": 0}),
            ("item/reasoning/summaryTextDelta", {**where, "delta": "thin", "summaryIndex": 0}),
            ("item/reasoning/textDelta", {**where, "delta": "raw", "contentIndex": 0}),
        ]
        item = next(
            m["params"]["item"]
            for m in messages
            if m["method"] == "item/completed" and m["params"]["item"]["id"] == "rs_1"
        )
        assert (item["type"], item["summary"], item["content"]) == ("reasoning", ["thin"], ["raw"])
        await client.turn(thread_id, "again")
        assert done in served.model.items()


async def test_a_model_that_announces_little_is_understood(tmp_path: Path) -> None:
    """Some servers send no `output_item.added`, no ids, or items of kinds of their own."""
    script = [
        {"type": "response.output_text.delta", "item_id": "m", "delta": "hi"},
        {
            "type": "response.output_item.done",
            "item": {"type": "message", "role": "assistant", "id": "m", "phase": "final_answer",
                     "content": [{"type": "output_text", "text": "hi"}]},
        },
        {"type": "response.output_item.added", "item": {"type": "message", "role": "assistant"}},
        {"type": "response.output_item.done",
         "item": {"type": "message", "role": "assistant", "content": "strange"}},
        {"type": "response.output_item.done", "item": {"type": "web_search_call", "id": "ws"}},
        {"type": "response.output_item.done", "item": {"type": "reasoning"}},
        COMPLETED,
    ]  # fmt: skip
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        served.model.scripts.append(script)
        await start_turn(client, thread_id, "go")
        messages = await client.until("turn/completed")
        done = [m["params"]["item"] for m in messages if m["method"] == "item/completed"][1:]
        assert [(item["type"], item.get("text"), item.get("phase")) for item in done] == [
            ("agentMessage", "hi", "final_answer"),
            ("agentMessage", "", None),
            ("webSearch", None, None),
            ("reasoning", None, None),
        ]
        assert messages[-1]["params"]["turn"]["items"] == [done[1]]
        await client.turn(thread_id, "again")
        kinds = [item["type"] for item in served.model.items()]
        assert kinds == ["message"] * 3 + ["web_search_call", "reasoning", "message"]
