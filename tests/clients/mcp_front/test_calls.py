"""The app-server as an MCP server: calls, replies, events and errors."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from tests.support.clients.mcp_front import Front, front, front_process, parameters
from tests.support.clients.scripted_front import result_of, scripted
from tests.support.harness import WAIT_S, claim
from tests.support.model import BREAK, Refusal, calls, says

NOBODY = "019a0000-0000-7000-8000-000000000000"


@claim("front:settings")
async def test_a_call_chooses_a_profile_and_what_the_model_is_offered(tmp_path: Path) -> None:
    async with scripted(tmp_path) as model:
        (tmp_path / "work.config.toml").write_text('model = "of-work"\n')
        async with front(tmp_path) as client:
            chosen = {"profile": "work", "include-plan-tool": False}
            await client.call("codex", prompt="Hi.", **chosen)
            await client.call("codex", prompt="Hi.", **{"include-apply-patch-tool": False})
            refused = await client.call("codex", prompt="Hi.", profile="nope")
    both = {"update_plan", "apply_patch"}
    assert [
        (request["model"], both & {tool.get("name") for tool in request["tools"]})
        for request in model.requests
    ] == [("of-work", {"apply_patch"}), ("scripted", {"update_plan"})]
    assert refused == result_of(
        "failed to load configuration: there is no profile `nope`: "
        f"{tmp_path}/nope.config.toml is not there",
        None,
        is_error=True,
    )


@pytest.mark.process
@claim("front:turn")
async def test_a_client_of_the_sdk_runs_a_turn_and_replies(tmp_path: Path) -> None:
    async with scripted(tmp_path) as model:
        model.scripts += [says("Hel", "lo."), says("Again.")]
        async with Client(parameters(tmp_path)) as client:
            tools = (await client.list_tools()).tools
            assert [tool.name for tool in tools] == ["codex", "codex-reply"]
            first = await client.call_tool("codex", {"prompt": "Hi.", "model": "chosen"})
            assert first.structured_content is not None
            thread_id = first.structured_content["threadId"]
            second = await client.call_tool(
                "codex-reply", {"prompt": "More.", "threadId": thread_id}
            )
    assert first.structured_content == {"threadId": thread_id, "content": "Hello."}
    assert (first.is_error, second.is_error) == (False, False)
    assert second.structured_content == {"threadId": thread_id, "content": "Again."}
    assert [request["model"] for request in model.requests] == ["chosen", "chosen"]
    assert model.inputs()[-3:] == [
        ("user", "Hi."),
        ("assistant", "Hello."),
        ("user", "More."),
    ]


@claim("front:events")
async def test_events_of_a_turn_name_the_call_and_its_thread(tmp_path: Path) -> None:
    async with scripted(tmp_path) as model, front(tmp_path) as client:
        model.scripts.append(says("Hel", "lo."))
        result = await client.call("codex", prompt="Hi.")
        thread_id = result["structuredContent"]["threadId"]
        assert result == result_of("Hello.", thread_id)
        [request_id] = {params["_meta"]["requestId"] for params in client.events}
        assert isinstance(request_id, int)
        assert {params["_meta"]["threadId"] for params in client.events} == {thread_id}
        warning = client.events.pop(4)
        assert (warning["id"], warning["msg"]["type"]) == ("", "warning")
        turn_id = client.events[1]["id"]
        assert [params["id"] for params in client.events] == ["", *[turn_id] * 9]
        messages = [params["msg"] for params in client.events]
        assert [message["type"] for message in messages] == [
            "session_configured",
            "task_started",
            "item_started",
            "item_completed",
            "item_started",
            "agent_message_content_delta",
            "agent_message_content_delta",
            "item_completed",
            "token_count",
            "task_complete",
        ]
        rollout = messages[0].pop("rollout_path")
        assert rollout.startswith(str(tmp_path))
        assert rollout.endswith(f"{thread_id}.jsonl")
        assert messages[0] == {
            "type": "session_configured",
            "session_id": thread_id,
            "model": "scripted",
            "model_provider_id": "scripted",
            "approval_policy": "on-request",
            "cwd": str(tmp_path),
        }
        ids = {"thread_id": thread_id, "turn_id": turn_id}
        delta = {"type": "agent_message_content_delta", **ids}
        item_id = messages[7]["item"]["id"]
        assert messages[5] == {**delta, "item_id": item_id, "delta": "Hel"}
        assert messages[7]["item"]["text"] == "Hello."
        usage = {
            "total_tokens": 15,
            "input_tokens": 10,
            "cached_input_tokens": 2,
            "output_tokens": 5,
            "reasoning_output_tokens": 1,
        }
        counted = messages[8]["info"]
        assert counted["last_token_usage"].items() >= usage.items()
        assert counted["total_token_usage"] == counted["last_token_usage"]
        assert messages[9] == {
            "type": "task_complete",
            "turn_id": turn_id,
            "last_agent_message": "Hello.",
        }


@claim("front:turn")
@pytest.mark.parametrize(
    "offered",
    [front, pytest.param(front_process, marks=[pytest.mark.slow, pytest.mark.process])],
)
async def test_a_reply_finds_a_thread_of_an_earlier_process(
    tmp_path: Path, offered: Callable[[Path], AbstractAsyncContextManager[Front]]
) -> None:
    async with scripted(tmp_path) as model:
        async with offered(tmp_path) as client:
            first = await client.call("codex", prompt="Hi.")
        thread_id = first["structuredContent"]["threadId"]
        async with offered(tmp_path) as client:
            second = await client.call("codex-reply", prompt="More.", conversationId=thread_id)
        assert second == result_of("ok", thread_id)
        assert model.inputs()[-3:] == [("user", "Hi."), ("assistant", "ok"), ("user", "More.")]


@claim("front:errors")
async def test_what_makes_no_sense_is_answered_as_such(tmp_path: Path) -> None:
    bad = "Failed to parse configuration for Codex tool: "
    async with scripted(tmp_path) as model, front(tmp_path) as client:
        cases: list[tuple[str, dict[str, Any], str]] = [
            ("codex", {}, bad + "prompt: Field required"),
            ("codex", {"prompt": 1}, bad + "prompt: Input should be a valid string"),
            (
                "codex",
                {"prompt": "x", "colour": "red"},
                bad + "colour: Extra inputs are not permitted",
            ),
            (
                "codex",
                {"prompt": "x", "sandbox": "none"},
                f"{bad}sandbox: Input should be 'read-only', 'workspace-write' or "
                "'danger-full-access'",
            ),
            ("codex-reply", {"prompt": "x"}, bad + "threadId: Field required"),
            ("nonsense", {}, "Unknown tool 'nonsense'"),
        ]
        for name, arguments, text in cases:
            called = await client.call(name, **arguments)
            assert called == result_of(text, None, is_error=True)
        for thread_id in (NOBODY, "nonsense"):
            called = await client.call("codex-reply", prompt="x", threadId=thread_id)
            unknown = f"Session not found for thread_id: {thread_id}"
            assert called == result_of(unknown, thread_id, is_error=True)
        for method in ("resources/list", "prompts/list", "logging/setLevel", "thread/nonsense"):
            with pytest.raises(MCPError) as refused:
                await client.request(method, {})
            assert (refused.value.code, refused.value.error.message) == (
                -32601,
                f"Method not found: {method}",
            )
        assert await client.request("ping") == {}
        assert model.requests == []


@claim("front:errors")
async def test_a_turn_that_fails_is_an_error_with_its_thread(tmp_path: Path) -> None:
    async with scripted(tmp_path) as model, front(tmp_path) as client:
        model.scripts += [Refusal(400, {"error": {"message": "no such model"}}), [BREAK]]
        for _ in range(2):
            result = await client.call("codex", prompt="Hi.")
            error = next(e for e in reversed(client.events) if e["msg"]["type"] == "error")
            thread_id = error["_meta"]["threadId"]
            assert result == result_of(error["msg"]["message"], thread_id, is_error=True)


@pytest.mark.slow
@pytest.mark.process
@claim("apps:t-59", "front:turn")
async def test_a_turn_calls_a_tool_of_an_app(tmp_path: Path) -> None:
    demo = "[apps_service]\ndemo = true\n"
    async with (
        scripted(tmp_path, demo) as model,
        front_process(tmp_path, {"action": "accept"}) as client,
    ):
        first = await client.call("codex", prompt="Hi.")
        thread_id = first["structuredContent"]["threadId"]
        # The apps are read once the server runs; a thread takes them over when they are there.
        with anyio.fail_after(WAIT_S):
            while "mcp__codex_apps__calendar" not in [
                tool["name"] for tool in model.requests[-1].get("tools", [])
            ]:
                await client.call("codex-reply", prompt="Well?", threadId=thread_id)
        title = {"title": "Tea", "start": "2026-11-22T16:00:00Z"}
        create = {
            "namespace": "mcp__codex_apps__calendar",
            "name": "_create_event",
            "arguments": title,
        }
        model.scripts += [calls(create), says("It is in the calendar.")]
        result = await client.call("codex-reply", prompt="Tea at four.", threadId=thread_id)
        assert result == result_of("It is in the calendar.", thread_id)
        [item] = [
            params["msg"]["item"]
            for params in client.events
            if params["msg"]["type"] == "item_completed"
            and params["msg"]["item"]["type"] == "mcpToolCall"
        ]
        assert (item["status"], item["appContext"]["appName"]) == ("completed", "Calendar")
        assert (item["tool"], item["arguments"]) == ("_create_event", title)
        [question] = client.asked
        assert question["_meta"]["connector_name"] == "Calendar"
        assert question["codex_mcp_server"] == "codex_apps__calendar"
