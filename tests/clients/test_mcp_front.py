"""The app-server as an MCP server, in this process and as the real executable."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from app_server.clients.mcp_front.app_client import AppClient
from app_server.clients.mcp_front.approvals import parse_decision
from app_server.clients.mcp_front.conversation import FrontLimits
from app_server.clients.mcp_front.pipe import MAX_WAITING, open_pipe
from app_server.clients.mcp_front.process import offer
from app_server.clients.mcp_front.questions import Verdict, elicitation_params, parse_verdict
from protocol.envelope import Answer, Notification, parse_message
from protocol.errors import RpcError
from tests.support.clients.mcp_front import EXECUTABLE, Front, front, front_process, parameters
from tests.support.harness import (
    BREAK,
    WAIT_S,
    Gate,
    Refusal,
    ScriptedModel,
    calls,
    claim,
    environment_without,
    says,
    serve,
    stdio_server,
    write_config,
)

NOBODY = "019a0000-0000-7000-8000-000000000000"
WIPE = {"namespace": "mcp__peer", "name": "wipe", "arguments": {"text": "all"}}


@asynccontextmanager
async def scripted(home: Path, config: str = "") -> AsyncIterator[ScriptedModel]:
    """Serve a scripted model, and write the config.toml that leads to it."""
    async with ScriptedModel().serve() as model:
        write_config(home, model.url, config)
        yield model


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


def result_of(text: str, thread_id: str | None, *, is_error: bool = False) -> dict[str, Any]:
    """Return what a call should come to."""
    result: dict[str, Any] = {"content": [{"type": "text", "text": text}]}
    if thread_id is not None:
        result["structuredContent"] = {"threadId": thread_id, "content": text}
    return {**result, "isError": True} if is_error else result


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


@claim("front:approval")
@pytest.mark.parametrize(
    ("answer", "output", "questions"),
    [
        ({"action": "accept"}, "wipe ran", 2),
        ({"action": "accept", "_meta": {"persist": "session"}}, "wipe ran", 1),
        ({"decision": "allow"}, "wipe ran", 2),
        ({"decision": "approved"}, "wipe ran", 2),
        ({"decision": "approved_for_session"}, "wipe ran", 1),
        ({"action": "decline"}, "user rejected MCP tool call", 2),
        ({"decision": "deny"}, "user rejected MCP tool call", 2),
        ({"decision": "denied"}, "user rejected MCP tool call", 2),
        ({"decision": "nonsense"}, "user rejected MCP tool call", 2),
        (None, "user rejected MCP tool call", 2),
    ],
)
async def test_a_tool_that_may_do_harm_is_asked_about_in_both_forms(
    tmp_path: Path, answer: dict[str, Any] | None, output: str, questions: int
) -> None:
    peer = stdio_server("peer", required="true")
    async with scripted(tmp_path, peer) as model, front(tmp_path, answer) as client:
        model.scripts += [calls(WIPE, {**WIPE, "call_id": "call_2"}), says("Done.")]
        result = await client.call("codex", prompt="Wipe it.")
        thread_id = result["structuredContent"]["threadId"]
        assert result == result_of("Done.", thread_id)
        outputs = [i for i in model.requests[-1]["input"] if i["type"] == "function_call_output"]
        assert len(outputs) == 2
        assert all(output in str(item["output"]) for item in outputs)
        assert len(client.asked) == questions
        meta = client.asked[0].pop("_meta")
        assert (meta["codex_approval_kind"], meta["tool_name"]) == ("mcp_tool_call", "wipe")
        [request_id] = {params["_meta"]["requestId"] for params in client.events}
        turn_id = (await client.until("task_started"))["id"]
        assert client.asked[0] == {
            "message": 'Allow the peer MCP server to run tool "wipe"?',
            "requestedSchema": {"type": "object", "properties": {}},
            "threadId": thread_id,
            "codex_elicitation": "mcp-tool-approval",
            "codex_mcp_tool_call_id": request_id,
            "codex_event_id": turn_id,
            "codex_mcp_server": "peer",
        }


@claim("front:commands")
@pytest.mark.parametrize(
    ("answer", "is_done"),
    [
        ({"decision": "approved"}, True),
        ({"decision": "allow"}, True),
        ({"action": "accept"}, True),
        ({"decision": "denied"}, False),
        ({"action": "decline"}, False),
        (None, False),
    ],
)
async def test_commands_and_patches_are_asked_about(
    tmp_path: Path, answer: dict[str, Any] | None, is_done: bool
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    patch = "*** Begin Patch\n*** Add File: b.txt\n+new\n*** End Patch"
    asks = [
        {"name": "exec_command", "arguments": {"cmd": "touch a.txt", "login": False}},
        {"name": "apply_patch", "arguments": {"input": patch}, "call_id": "call_2"},
    ]
    async with scripted(tmp_path) as model, front(tmp_path, answer) as client:
        model.scripts += [calls(*asks), says("Done.")]
        result = await client.call(
            "codex",
            prompt="Go.",
            cwd=str(folder),
            sandbox="workspace-write",
            **{"approval-policy": "untrusted"},
        )
        thread_id = result["structuredContent"]["threadId"]
        assert result == result_of("Done.", thread_id)
        made = [(folder / name).exists() for name in ("a.txt", "b.txt")]
        assert made == [is_done, is_done]
        [request_id] = {params["_meta"]["requestId"] for params in client.events}
        turn_id = (await client.until("task_started"))["id"]
        common = {
            "requestedSchema": {"type": "object", "properties": {}},
            "threadId": thread_id,
            "codex_mcp_tool_call_id": request_id,
            "codex_event_id": turn_id,
        }
        of_command, of_patch = client.asked
        shell = of_command["codex_command"][0]
        assert of_command == {
            **common,
            "codex_elicitation": "exec-approval",
            "codex_call_id": "call_1",
            "message": f"Allow `{shell} -c 'touch a.txt'` to run in `{folder}`?",
            "codex_command": [shell, "-c", "touch a.txt"],
            "codex_cwd": str(folder),
            "codex_parsed_cmd": [{"type": "unknown", "cmd": "touch a.txt"}],
        }
        assert of_patch == {
            **common,
            "codex_elicitation": "patch-approval",
            "codex_call_id": "call_2",
            "message": f"Allow changes of files: {folder}/b.txt?",
            "codex_reason": None,
            "codex_grant_root": None,
            "codex_changes": {f"{folder}/b.txt": {"type": "add", "content": "new\n"}},
        }


@claim("front:commands")
@pytest.mark.parametrize("answer", [{"decision": "abort"}, {"action": "cancel"}])
async def test_a_cancelled_command_ends_the_turn(tmp_path: Path, answer: dict[str, Any]) -> None:
    async with scripted(tmp_path) as model, front(tmp_path, answer) as client:
        model.scripts.append(calls({"name": "exec_command", "arguments": {"cmd": "touch a"}}))
        result = await client.call("codex", prompt="Go.", **{"approval-policy": "untrusted"})
        thread_id = result["structuredContent"]["threadId"]
        assert result == result_of("The turn was interrupted", thread_id, is_error=True)
        assert len(model.requests) == 1


def test_an_approval_is_read_in_both_forms() -> None:
    for answer, decision in (
        ({"decision": "approved_for_session"}, "acceptForSession"),
        ({"action": "accept", "_meta": {"persist": "session"}}, "acceptForSession"),
        ({"action": "cancel"}, "cancel"),
        ({"decision": "abort"}, "cancel"),
        ({"decision": 5}, "decline"),
        ({"action": "maybe"}, "decline"),
        ([], "decline"),
    ):
        assert parse_decision(answer) == decision


@claim("front:approval")
async def test_an_abort_ends_the_turn_and_the_call_is_answered(tmp_path: Path) -> None:
    peer, abort = stdio_server("peer", required="true"), {"decision": "abort"}
    async with scripted(tmp_path, peer) as model, front(tmp_path, abort) as client:
        model.scripts.append(calls(WIPE))
        result = await client.call("codex", prompt="Wipe it.")
        thread_id = result["structuredContent"]["threadId"]
        assert result == result_of("The turn was interrupted", thread_id, is_error=True)
        assert (await client.until("turn_aborted"))["msg"]["reason"] == "interrupted"
        assert len(model.requests) == 1


@claim("front:cancel")
async def test_a_cancelled_call_interrupts_its_turn_and_is_not_answered(tmp_path: Path) -> None:
    async with scripted(tmp_path) as model, front(tmp_path) as client:
        gate = Gate()
        model.scripts.append([gate])
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: client.call("codex", prompt="Hi."))
                await gate.wait_until_reached()
                scope.cancel()
        # The SDK has sent `notifications/cancelled`.
        aborted = await client.until("turn_aborted")
        thread_id = aborted["_meta"]["threadId"]
        assert aborted["msg"] == {
            "type": "turn_aborted",
            "turn_id": aborted["id"],
            "reason": "interrupted",
        }
        again = await client.call("codex-reply", prompt="Go on.", threadId=thread_id)
        assert again == result_of("ok", thread_id)
        assert model.inputs()[-1] == ("user", "Go on.")


@claim("front:cancel")
async def test_a_question_of_a_cancelled_call_is_withdrawn(tmp_path: Path) -> None:
    peer = stdio_server("peer", required="true")
    async with scripted(tmp_path, peer) as model, front(tmp_path) as client:
        asked, withdrawn = asyncio.Event(), asyncio.Event()

        async def never(params: dict[str, Any]) -> dict[str, Any]:
            asked.set()
            try:
                await asyncio.Event().wait()
            finally:
                withdrawn.set()
            return {}

        client.answer_with = never
        model.scripts.append(calls(WIPE))
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: client.call("codex", prompt="Wipe it."))
                with anyio.fail_after(WAIT_S):
                    await asked.wait()
                scope.cancel()
        with anyio.fail_after(WAIT_S):
            await withdrawn.wait()
        await client.until("turn_aborted")


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


@asynccontextmanager
async def called_by_hand(home: Path, gate: Gate) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start the executable, and call it as `a` with a turn that has reached the gate."""
    process = await asyncio.create_subprocess_exec(
        str(EXECUTABLE),
        *("--home", str(home), "mcp-server"),
        env=environment_without("CODEX_HOME", "APP_SERVER_HOME"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    process.stdin.write(
        b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"clientInfo":'
        b'{"name":"x","version":"1"}}}\n{"jsonrpc":"2.0","id":"a","method":"tools/call",'
        b'"params":{"name":"codex","arguments":{"prompt":"Hi."}}}\n'
    )
    await gate.wait_until_reached()
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        await process.communicate()


async def last_answer(process: asyncio.subprocess.Process) -> Any:
    """Wait for the end of the process, and return the result of `a`."""
    assert process.stdout is not None
    with anyio.fail_after(WAIT_S):
        output = await process.stdout.read()
        assert await process.wait() == 0
    answers = [parse_message(line) for line in output.decode().splitlines()]
    [answer] = [a for a in answers if isinstance(a, Answer) and a.id == "a"]
    return answer.result


@pytest.mark.process
@claim("front:end")
async def test_the_end_of_stdin_ends_turns_and_the_process(tmp_path: Path) -> None:
    async with scripted(tmp_path) as model:
        gate = Gate()
        model.scripts.append([gate])
        async with called_by_hand(tmp_path, gate) as process:
            assert process.stdin is not None
            process.stdin.close()
            result = await last_answer(process)
        thread_id = result["structuredContent"]["threadId"]
        assert result == result_of("The turn was interrupted", thread_id, is_error=True)


@pytest.mark.process
@claim("front:end")
async def test_sigterm_lets_calls_end_though_the_client_stays(tmp_path: Path) -> None:
    async with scripted(tmp_path) as model:
        gate = Gate()
        model.scripts.append([gate, *says("Done.")])
        async with called_by_hand(tmp_path, gate) as process:
            process.terminate()
            gate.opened.set()
            result = await last_answer(process)
        assert result == result_of("Done.", result["structuredContent"]["threadId"])


@claim("front:bounds")
async def test_calls_beyond_the_bound_are_refused_and_the_others_answered(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, anyio.create_task_group() as tasks:
        ours, theirs = open_pipe()
        tasks.start_soon(offer, served.app, theirs, FrontLimits(max_calls=1))
        gate = Gate()
        served.model.scripts.append([gate, *says("ok")])

        async def next_answer() -> Answer:
            while True:
                message = parse_message(await ours.receive())
                if isinstance(message, Answer):
                    return message

        with anyio.fail_after(WAIT_S):
            await ours.send(
                '{"id":0,"method":"initialize","params":{"clientInfo":{"name":"x","version":"1"}}}'
            )
            assert (await next_answer()).id == 0
            call = '"method":"tools/call","params":{"name":"codex","arguments":{"prompt":"x"}}}'
            await ours.send(f'{{"id":1,{call}')
            await gate.wait_until_reached()
            await ours.send(f'{{"id":2,{call}')
            refused = await next_answer()
            assert (refused.id, refused.error["code"]) == (2, -32001)
            await ours.send(f'{{"id":1,{call}')
            assert (await next_answer()).error["message"] == "a call with this id is running"
            await ours.send("[]")
            assert (await next_answer_code(ours)) == -32600
            await ours.send("nonsense")
            assert (await next_answer_code(ours)) == -32700
            gate.opened.set()
            answered = await next_answer()
            assert (answered.id, answered.result["content"][0]["text"]) == (1, "ok")
            await ours.aclose()


@claim("front:bounds")
async def test_a_client_that_does_not_read_counts_as_gone(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        served.model.scripts.append(says(*["x"] * MAX_WAITING))
        ours, theirs = open_pipe()
        await ours.send(
            '{"id":0,"method":"initialize","params":{"clientInfo":{"name":"x","version":"1"}}}'
        )
        await ours.send(
            '{"id":1,"method":"tools/call","params":{"name":"codex","arguments":{"prompt":"x"}}}'
        )
        with anyio.fail_after(WAIT_S):
            await offer(served.app, theirs, FrontLimits(send_s=0.2))
            heard = [parse_message(await ours.receive()) for _ in range(MAX_WAITING)]
            with pytest.raises(anyio.EndOfStream):
                await ours.receive()
        assert [type(message) for message in heard] == [Answer, *[Notification] * (MAX_WAITING - 1)]
        await ours.aclose()


async def next_answer_code(pipe: Any) -> int:
    """Return the code of the next error without an id."""
    while True:
        text = await pipe.receive()
        if '"id":null' in text:
            return int(text.split('"code":')[1].split(",")[0])


@claim("front:approval")
def test_a_link_is_put_to_the_client_as_a_link() -> None:
    link = {"mode": "url", "message": "Sign in.", "url": "https://a.test/", "elicitationId": "e"}
    asked = {**link, "threadId": "t", "turnId": None, "serverName": "mail", "_meta": None}
    assert elicitation_params(asked, "call") == {
        **link,
        "threadId": "t",
        "codex_elicitation": "mcp-elicitation",
        "codex_mcp_tool_call_id": "call",
        "codex_event_id": None,
        "codex_mcp_server": "mail",
    }


@claim("front:approval")
@pytest.mark.parametrize("answer", [None, [], {}, {"action": "maybe"}, {"decision": "maybe"}])
def test_an_answer_that_makes_no_sense_declines(answer: Any) -> None:
    assert parse_verdict(answer) == Verdict({"action": "decline"})


async def test_a_pipe_holds_a_few_messages_and_ends_after_the_last_is_read() -> None:
    left, right = open_pipe()
    for number in range(MAX_WAITING):
        await left.send(str(number))
    with anyio.move_on_after(0) as scope:
        await left.send("one too many")
    assert scope.cancelled_caught
    await left.aclose()
    assert [await right.receive() for _ in range(MAX_WAITING)] == list(map(str, range(MAX_WAITING)))
    with pytest.raises(anyio.EndOfStream):
        await right.receive()
    with pytest.raises(anyio.EndOfStream):
        await left.receive()
    with pytest.raises(anyio.BrokenResourceError):
        await right.send("too late")
    with pytest.raises(anyio.BrokenResourceError):
        await left.send("too late")
    await right.aclose()


async def test_calls_fail_when_the_app_server_has_gone() -> None:
    near, far = open_pipe()
    app = AppClient(near)

    class Nobody:
        async def on_event(self, event: Any) -> None:
            """Hear nothing."""

        async def question(self, question: Any) -> None:
            """Answer nothing."""

    async def call() -> None:
        with pytest.raises(RpcError, match="the app-server has stopped"):
            await app.call("thread/start", {})

    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(app.run, Nobody())
            tasks.start_soon(call)
            await far.receive()
            await far.aclose()
        await call()
    await near.aclose()
