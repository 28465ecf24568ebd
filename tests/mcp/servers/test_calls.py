"""mcp: calls of tools as items, with metadata and progress, interrupted and unanswered."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from protocol.integrations.mcp import RESERVED_META
from tests.support.harness import claim, serve, stdio_server
from tests.support.mcp_peers.calls import (
    call_items,
    input_text,
    raw_call,
    steps_until_settled,
    with_peer,
)
from tests.support.model import Gate, calls
from tests.support.turns import held_clocks


@claim("mcp:declared", "mcp:items", "mcp:outputs")
async def test_calls_become_items_and_outputs(tmp_path: Path) -> None:
    async with with_peer(tmp_path, "paged") as (served, client, thread_id):
        items, outputs = await call_items(
            served,
            client,
            thread_id,
            raw_call("structured"),
            raw_call("fail", "  "),
            raw_call("refuse"),
            raw_call("blocks"),
            raw_call("meta", "[1]"),
            raw_call("meta", "{bad"),
            raw_call("nothing"),
            {"name": "bare", "arguments": {}},
        )
        tools = served.model.requests[0]["tools"]
        namespace = tools[-1]
        assert (namespace["type"], namespace["name"]) == ("namespace", "mcp__raw")
        assert namespace["description"] == "Use it wisely."
        assert namespace["tools"][0] == {
            "type": "function",
            "name": "blocks",
            "description": "",
            "strict": False,
            "parameters": {"type": "object", "properties": {"text": {"type": "string"}}},
        }
        assert [tool["name"] for tool in namespace["tools"]] == sorted(
            tool["name"] for tool in namespace["tools"]
        )

        def item(number: int, tool: str, **members: Any) -> Any:
            found = items[number]
            known: dict[str, Any] = {
                "type": "mcpToolCall",
                "id": f"call_{number + 1}",
                "server": "raw",
                "tool": tool,
                "status": "completed",
                "arguments": {},
                "appContext": None,
                "mcpAppUi": None,
                "pluginId": None,
                "readOnlyHint": True,
                "result": None,
                "error": None,
            }
            times = {key: found[key] for key in ("durationMs", "startedAtMs", "completedAtMs")}
            assert all(isinstance(value, int) for value in times.values())
            return known | times | members

        assert items == [
            item(
                0,
                "structured",
                result={
                    "content": [{"type": "text", "text": "t"}],
                    "structuredContent": {"b": 1, "a": [2]},
                    "_meta": {"m": 1},
                },
            ),
            item(
                1,
                "fail",
                status="failed",
                arguments=None,
                result={
                    "content": [{"type": "text", "text": "it went wrong"}],
                    "structuredContent": None,
                    "_meta": None,
                },
            ),
            item(
                2,
                "refuse",
                status="failed",
                error={
                    "message": "tool call error: tool call failed for `raw/refuse`\n\nCaused by:\n"
                    '    Mcp error: -32050: refused({"why":1})'
                },
            ),
            item(3, "blocks", result=items[3]["result"]),
            item(
                4,
                "meta",
                status="failed",
                arguments=[1],
                error={
                    "message": "tool call error: tool call failed for `raw/meta`\n\nCaused by:\n"
                    "    MCP tool arguments must be a JSON object, got [1]"
                },
            ),
        ]
        assert [block["type"] for block in items[3]["result"]["content"]] == [
            "image",
            "audio",
            "resource_link",
        ]
        header = outputs[1][0]["text"]
        assert header.startswith("Wall time: 0.")
        assert header.endswith(" seconds\nOutput:")
        assert outputs[0].endswith(' seconds\nOutput:\n{"b":1,"a":[2]}')
        assert outputs[1][1:] == [input_text("it went wrong")]
        assert outputs[2][1:] == [input_text(items[2]["error"]["message"])]
        assert outputs[3][1:] == [
            {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "high"},
            input_text("<audio content omitted because you do not support audio input>"),
            input_text('{"type":"resource_link","uri":"mem://a","name":"a"}'),
        ]
        assert outputs[5].startswith("err: ")
        assert outputs[6:] == ["unsupported call: mcp__rawnothing", "unsupported call: bare"]
        read = await client.call("thread/read", {"threadId": thread_id, "includeTurns": True})
        stored = read["thread"]["turns"][0]["items"][1:-1]
        assert sorted(stored, key=lambda item: item["id"]) == items


@claim(
    "meta:direct",
    "meta:for-its-server",
    "meta:not-the-next-turn",
    "meta:steer",
    "meta:not-in-the-log",
)
async def test_metadata_reaches_its_server_for_one_turn_and_no_other(tmp_path: Path) -> None:
    config = stdio_server("raw") + stdio_server("other")
    async with serve(tmp_path, config=config) as served, served.client() as client:
        thread_id = await client.start_thread(model="m", config={"model_reasoning_effort": "low"})
        await steps_until_settled(client, "raw", "other")

        def seen(items: list[Any]) -> list[Any]:
            return [json.loads(item["result"]["content"][0]["text"]) for item in items]

        other_call = {"namespace": "mcp__other", "name": "meta", "arguments": {}}
        meta = {"raw": {"place": {"x": None}, "threadId": "evil"}, "nobody": {"y": 1}}
        items, _ = await call_items(
            served,
            client,
            thread_id,
            raw_call("meta"),
            other_call,
            mcpMetaByServer=meta,
            responsesapiClientMetadata={"bag": "model only"},
            turnTrigger="user",
            parentTurnId="parent",
        )
        mine, others = seen(items)
        turn = mine["x-codex-turn-metadata"]
        assert mine == {
            "place": {"x": None},
            "callId": "call_1",
            "codex/toolCallId": "call_1",
            "x-codex-turn-metadata": {
                "session_id": thread_id,
                "thread_id": thread_id,
                "model": "m",
                "reasoning_effort": "low",
                "turn_trigger": "user",
                "parent_turn_id": "parent",
                "turn_id": turn["turn_id"],
                "turn_started_at_unix_ms": turn["turn_started_at_unix_ms"],
                "sandbox_mode": "read-only",
                "auto_review_enabled": False,
                "codex_version": "0.169.0",
            },
            "threadId": thread_id,
            "sessionId": thread_id,
            "windowId": f"{thread_id}:0",
            "itemId": "fc_1",
            "progressToken": mine["progressToken"],
        }
        assert others.keys() == mine.keys() - {"place"}
        assert served.model.requests[0]["client_metadata"] == {"bag": "model only"}

        items, _ = await call_items(served, client, thread_id, raw_call("meta"))
        assert "place" not in seen(items)[0]

        gate = Gate()
        served.model.scripts.append([gate, *calls(raw_call("meta"), other_call)])
        started = await client.call(
            "turn/start",
            {
                "threadId": thread_id,
                "input": [{"type": "text", "text": "go"}],
                "mcpMetaByServer": {"raw": {"a": 1, "b": 1}},
            },
        )
        await gate.wait_until_reached()
        await client.call(
            "turn/steer",
            {
                "threadId": thread_id,
                "expectedTurnId": started["turn"]["id"],
                "input": [],
                "mcpMetaByServer": {"raw": {"b": 2}, "other": {"c": 3}},
            },
        )
        gate.opened.set()
        messages = await client.until("turn/completed")
        done = [m["params"]["item"] for m in messages if m.get("method") == "item/completed"]
        made = [item for item in done if item["type"] == "mcpToolCall"]
        mine, others = seen(sorted(made, key=lambda item: item["id"]))
        assert (mine.get("a"), mine["b"], others["c"]) == (None, 2, 3)

        given: dict[str, Any] = {"mine": {"x": None}, "codex/sandbox-state-meta": {"a": "evil"}}
        reserved = dict.fromkeys(RESERVED_META, "evil")
        direct = await client.call(
            "mcpServer/tool/call",
            {
                "threadId": thread_id,
                "server": "raw",
                "tool": "meta",
                "_meta": {**given, **reserved},
            },
        )
        direct_meta = json.loads(direct["content"][0]["text"])
        assert direct_meta == {
            "mine": {"x": None},
            "threadId": thread_id,
            "progressToken": direct_meta["progressToken"],
        }
        bad = await client.refusal(
            "turn/start", {"threadId": thread_id, "input": [], "mcpMetaByServer": {"raw": 5}}
        )
        assert (bad.code, bad.data["field"]) == (-32602, "mcpMetaByServer.raw")
        read = await client.call("thread/read", {"threadId": thread_id})
        log = Path(read["thread"]["path"]).read_text()
        assert '"mcpMetaByServer"' not in log


async def test_metadata_by_server_needs_the_opt_in(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client(experimental=False) as client:
        thread_id = await client.start_thread()
        error = await client.refusal(
            "turn/start", {"threadId": thread_id, "input": [], "mcpMetaByServer": {}}
        )
        assert error.message == "turn/start.mcpMetaByServer requires experimentalApi capability"


@claim("mcp:progress")
async def test_progress_with_a_message_is_passed_on(tmp_path: Path) -> None:
    async with with_peer(tmp_path) as (served, client, thread_id):
        served.model.scripts.append(calls(raw_call("progress")))
        params = {"threadId": thread_id, "input": [{"type": "text", "text": "go"}]}
        started = await client.call("turn/start", params)
        told = await client.wait_for("item/mcpToolCall/progress")
        assert told["params"] == {
            "threadId": thread_id,
            "turnId": started["turn"]["id"],
            "itemId": "call_1",
            "message": "half way",
        }
        await client.wait_for("turn/completed")


@claim("mcp:interrupt-cancels")
async def test_an_interrupt_cancels_the_call_at_its_server(tmp_path: Path) -> None:
    log = tmp_path / "peer.log"
    async with with_peer(tmp_path, "log", str(log)) as (served, client, thread_id):
        served.model.scripts.append(calls(raw_call("slow")))
        params = {"threadId": thread_id, "input": [{"type": "text", "text": "go"}]}
        started = await client.call("turn/start", params)
        await client.wait_for("item/started", lambda p: p["item"]["type"] == "mcpToolCall")
        interrupt = {"threadId": thread_id, "turnId": started["turn"]["id"]}
        await client.call("turn/interrupt", interrupt)
        messages = await client.until("turn/completed")
        assert "item/completed" not in {m.get("method") for m in messages}
        assert messages[-1]["params"]["turn"]["status"] == "interrupted"
        # The same connection answers the next call, after the notification.
        items, _ = await call_items(served, client, thread_id, raw_call("meta"))
        assert items[0]["status"] == "completed"
        methods = [json.loads(line)["method"] for line in log.read_text().splitlines()]
        assert methods[-3:] == ["tools/call", "notifications/cancelled", "tools/call"]
        history = served.model.items()
        outputs = [item["output"] for item in history if item["type"] == "function_call_output"]
        assert outputs[0] == "aborted before there was a result"


@claim("mcp:timeout", "mcp:death")
async def test_a_call_without_an_answer_fails_alone(tmp_path: Path) -> None:
    async with with_peer(tmp_path, "big", tool_timeout_sec="0.2") as (served, client, thread_id):
        [timed_out], _ = await call_items(served, client, thread_id, raw_call("slow"))
        # The limit is for that call alone.
        async with held_clocks(client, thread_id):
            [huge], outputs = await call_items(served, client, thread_id, raw_call("huge"))
            (died, later), _ = await call_items(
                served, client, thread_id, raw_call("die"), raw_call("request")
            )
        assert timed_out["error"]["message"].endswith("timed out awaiting tools/call after 0.2s")
        assert huge["status"] == "completed"
        assert huge["result"]["content"][0]["text"].startswith("Truncated tool output:\n")
        assert len(json.dumps(huge)) < 1 << 20
        assert len(outputs[0][1]["text"]) < 13_000
        assert died["error"]["message"].endswith("Caused by:\n    Transport closed")
        assert later["error"]["message"].endswith("Caused by:\n    Transport closed")
        assert (await client.turn(thread_id, "still there?"))["status"] == "completed"
        die = {"threadId": thread_id, "server": "raw", "tool": "die"}
        error = await client.refusal("mcpServer/tool/call", die)
        assert error.message == "tool call failed for `raw/die`: Transport closed"
        status = await client.call(
            "mcpServerStatus/list", {"threadId": thread_id, "serverName": "raw"}
        )
        (entry,) = status["data"]
        assert (entry["runtimeStatus"], entry["toolsError"]) == ("failed", None)
        assert "meta" in entry["tools"]


async def test_a_call_without_a_result_is_measured_as_failed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="app_server.mcp.measurements")
    async with with_peer(tmp_path, tool_timeout_sec="0.2") as (served, client, thread_id):
        await call_items(served, client, thread_id, raw_call("slow"))
        async with held_clocks(client, thread_id):
            for name in ("fail", "refuse", "die"):
                await call_items(served, client, thread_id, raw_call(name))
    lines = [record.getMessage().rpartition(" duration_ms=")[0] for record in caplog.records]
    assert [line for line in lines if line.startswith("call ")] == [
        f"call server='raw' tool='{name}' origin=None outcome={outcome}"
        for name, outcome in {
            "slow": "failed",
            "fail": "done",
            "refuse": "failed",
            "die": "failed",
        }.items()
    ]
