"""mcp: calls that need an approval."""

import json
from pathlib import Path
from typing import Any

import pytest

from app_server.turns.approval.tools import NOT_OFFERED
from tests.support.harness import claim, serve, stdio_server
from tests.support.mcp_peers.calls import (
    answer_question,
    call_items,
    input_text,
    raw_call,
    steps_until_settled,
    with_peer,
)
from tests.support.model import calls


@claim("approval:question", "approval:status")
async def test_a_tool_that_may_destroy_things_asks_first(tmp_path: Path) -> None:
    async with with_peer(tmp_path) as (served, client, thread_id):
        served.model.scripts.append(calls(raw_call("wipe", {"p": 1, "a": "x"})))
        params = {"threadId": thread_id, "input": [{"type": "text", "text": "go"}]}
        started = await client.call("turn/start", params)
        before = await client.until("mcpServer/elicitation/request")
        question = before[-1]
        assert question["params"] == {
            "threadId": thread_id,
            "turnId": started["turn"]["id"],
            "serverName": "raw",
            "mode": "form",
            "_meta": {
                "codex_approval_kind": "mcp_tool_call",
                "persist": ["session", "always"],
                "tool_name": "wipe",
                "tool_title": "Wipe",
                "tool_annotations": {"destructiveHint": True},
                "tool_description": "Destroy things.",
                "tool_params": {"p": 1, "a": "x"},
                "tool_params_display": [
                    {"name": "a", "value": "x", "display_name": "a"},
                    {"name": "p", "value": 1, "display_name": "p"},
                ],
            },
            "message": 'Allow the raw MCP server to run tool "wipe"?',
            "requestedSchema": {"type": "object", "properties": {}},
        }
        assert [m["method"] for m in before[-3:]] == [
            "item/started",
            "thread/status/changed",
            "mcpServer/elicitation/request",
        ]
        assert before[-2]["params"]["status"] == {
            "type": "active",
            "activeFlags": ["waitingOnApproval"],
        }
        await client.send({"id": question["id"], "result": {"action": "accept"}})
        after = await client.until("turn/completed")
        assert [m["method"] for m in after[:3]] == [
            "serverRequest/resolved",
            "thread/status/changed",
            "item/completed",
        ]
        assert after[0]["params"] == {"threadId": thread_id, "requestId": question["id"]}
        assert after[1]["params"]["status"] == {"type": "active", "activeFlags": []}
        assert after[2]["params"]["item"]["result"]["content"][0]["text"] == "wipe ran"


@claim("approval:refused", "approval:session")
async def test_refusals_fail_the_item_and_a_session_is_remembered(tmp_path: Path) -> None:
    async with with_peer(tmp_path) as (served, client, thread_id):

        async def ask(answer: Any) -> tuple[Any, Any]:
            served.model.scripts.append(calls(raw_call("wipe")))
            params = {"threadId": thread_id, "input": [{"type": "text", "text": "go"}]}
            await client.call("turn/start", params)
            await answer_question(client, answer)
            done = await client.wait_for(
                "item/completed", lambda p: p["item"]["type"] == "mcpToolCall"
            )
            end = await client.wait_for("turn/completed")
            assert end["params"]["turn"]["status"] == "completed"
            output = served.model.items()[-1]["output"]
            return done["params"]["item"], output

        rejected = "user rejected MCP tool call"
        for answer, text in (
            ({"result": {"action": "decline"}}, rejected),
            ({"result": {"action": "cancel"}}, "user cancelled MCP tool call"),
            ({"result": {"action": "nonsense"}}, rejected),
            ({"error": {"code": -1, "message": "no"}}, rejected),
        ):
            item, output = await ask(answer)
            assert (item["status"], item["error"]) == ("failed", {"message": text})
            assert (item["result"], item["durationMs"]) == (None, 0)
            assert output[1:] == [input_text(text)]
        item, _ = await ask({"result": {"action": "accept", "_meta": "strange"}})
        assert item["status"] == "completed"
        item, _ = await ask({"result": {"action": "accept", "_meta": {"persist": "session"}}})
        assert item["status"] == "completed"
        items, _ = await call_items(served, client, thread_id, raw_call("wipe"))
        assert items[0]["status"] == "completed"


@claim("approval:modes")
@pytest.mark.parametrize(
    ("mode", "tool", "policy", "sandbox", "outcome"),
    [
        ("auto", "meta", "on-request", "read-only", "runs"),
        ("auto", "plain", "on-request", "read-only", "asks"),
        ("auto", "wipe", "on-request", "danger-full-access", "asks"),
        ("auto", "wipe", "never", "danger-full-access", "runs"),
        ("auto", "wipe", "never", "workspace-write", "fails"),
        ("approve", "wipe", "never", "read-only", "runs"),
        ("prompt", "meta", "on-request", "read-only", "asks"),
        ("writes", "meta", "on-request", "read-only", "runs"),
        ("writes", "plain", "untrusted", "read-only", "asks"),
    ],
)
async def test_policy_decides_who_asks(
    tmp_path: Path, mode: str, tool: str, policy: str, sandbox: str, outcome: str
) -> None:
    config = stdio_server("raw", default_tools_approval_mode=f'"{mode}"')
    async with serve(tmp_path, config=config) as served, served.client() as client:
        thread_id = await client.start_thread(approvalPolicy=policy, sandbox=sandbox)
        await steps_until_settled(client, "raw")
        served.model.scripts.append(calls(raw_call(tool)))
        params = {"threadId": thread_id, "input": [{"type": "text", "text": "go"}]}
        await client.call("turn/start", params)
        if outcome == "asks":
            meta = {"_meta": {"persist": "session"}} if mode == "auto" else {}
            asked = await answer_question(client, {"result": {"action": "accept", **meta}})
            assert ("persist" in asked["_meta"]) == (mode == "auto")
        messages = await client.until("turn/completed")
        assert ("mcpServer/elicitation/request" in {m.get("method") for m in messages}) is False
        (item,) = (
            m["params"]["item"]
            for m in messages
            if m["method"] == "item/completed" and m["params"]["item"]["type"] == "mcpToolCall"
        )
        if outcome == "fails":
            assert item["error"]["message"] == (
                "MCP tool call requires approval, but approval policy is never"
            )
        else:
            assert item["status"] == "completed"


@pytest.mark.parametrize(
    ("mode", "persist"),
    [("prompt", "session"), ("prompt", "always"), ("writes", "always"), ("auto", "forever")],
)
async def test_an_approval_for_longer_than_was_offered_is_refused(
    tmp_path: Path, mode: str, persist: str
) -> None:
    config = stdio_server("raw", default_tools_approval_mode=f'"{mode}"')
    async with serve(tmp_path, config=config) as served, served.client() as client:
        thread_id = await client.start_thread(approvalPolicy="on-request", sandbox="read-only")
        await steps_until_settled(client, "raw")
        served.model.scripts.append(calls(raw_call("wipe")))
        params = {"threadId": thread_id, "input": [{"type": "text", "text": "go"}]}
        await client.call("turn/start", params)
        await answer_question(
            client, {"result": {"action": "accept", "_meta": {"persist": persist}}}
        )
        messages = await client.until("turn/completed")
        [item] = (
            m["params"]["item"]
            for m in messages
            if m["method"] == "item/completed" and m["params"]["item"]["type"] == "mcpToolCall"
        )
        assert item["error"] == {"message": "user rejected MCP tool call"}
        [warning] = [m["params"]["message"] for m in messages if m["method"] == "warning"]
        assert warning == NOT_OFFERED


@claim("approval:reconnect")
async def test_a_question_waits_for_the_next_client(tmp_path: Path) -> None:
    config = stdio_server("raw")
    async with serve(tmp_path, config=config) as served, served.client() as late:
        async with served.client() as client:
            thread_id = await client.start_thread()
            await steps_until_settled(client, "raw")
            served.model.scripts.append(calls(raw_call("wipe")))
            params = {"threadId": thread_id, "input": [{"type": "text", "text": "go"}]}
            await client.call("turn/start", params)
            await client.wait_for("mcpServer/elicitation/request")
        resumed = await late.call("thread/resume", {"threadId": thread_id})
        assert resumed["thread"]["status"]["activeFlags"] == ["waitingOnApproval"]
        await answer_question(late, {"result": {"action": "accept"}})
        end = await late.wait_for("turn/completed")
        assert end["params"]["turn"]["status"] == "completed"


async def test_an_interrupt_withdraws_a_question(tmp_path: Path) -> None:
    async with with_peer(tmp_path) as (served, client, thread_id):
        served.model.scripts.append(calls(raw_call("wipe")))
        params = {"threadId": thread_id, "input": [{"type": "text", "text": "go"}]}
        started = await client.call("turn/start", params)
        question = await client.wait_for("mcpServer/elicitation/request")
        interrupt = {"threadId": thread_id, "turnId": started["turn"]["id"]}
        await client.call("turn/interrupt", interrupt)
        messages = await client.until("turn/completed")
        resolved = [m["params"] for m in messages if m["method"] == "serverRequest/resolved"]
        assert resolved == [{"threadId": thread_id, "requestId": question["id"]}]
        await client.send({"id": question["id"], "result": {"action": "accept"}})
        assert (await client.turn(thread_id, "next"))["status"] == "completed"


@claim("approval:log")
async def test_each_decision_is_in_the_log_with_who_and_what(tmp_path: Path) -> None:
    async with with_peer(tmp_path) as (served, client, thread_id):
        for answer in (
            {"result": {"action": "decline"}},
            {"result": {"action": "cancel"}},
            {"error": {"code": -1, "message": "no"}},
            {"result": {"action": "accept"}},
            {"result": {"action": "accept", "_meta": {"persist": "always"}}},
        ):
            served.model.scripts.append(calls(raw_call("wipe")))
            params = {"threadId": thread_id, "input": [{"type": "text", "text": "go"}]}
            turn_id = (await client.call("turn/start", params))["turn"]["id"]
            await answer_question(client, answer)
            await client.wait_for("turn/completed")
        (path,) = served.home.rglob(f"{thread_id}.jsonl")
        records = [json.loads(line) for line in path.read_text().splitlines()]
        found = [record for record in records if record["type"] == "approvalDecided"]
        words = ["decline", "cancel", "failed", "accept", "acceptAlways"]
        assert [record["decision"] for record in found] == words
        assert found[-1].pop("atMs") > 0
        assert found[-1] == {
            "v": 1,
            "type": "approvalDecided",
            "turnId": turn_id,
            "itemId": "call_1",
            "action": "mcpToolCall",
            "subject": "raw/wipe",
            "decision": "acceptAlways",
            "by": "user",
            "client": "test",
        }
