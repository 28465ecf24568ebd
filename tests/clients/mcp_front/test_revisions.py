"""The app-server as an MCP server: clients of the SDK in both revisions, and what is refused."""

import json
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher

from app_server.mcp_wire import held_calls
from tests.support.clients.mcp_front import INFO, Front, front, pipe
from tests.support.clients.scripted_front import WIPE, result_of, scripted
from tests.support.forked_commands.listener import forked_command
from tests.support.harness import WAIT_S, claim, serve, stdio_server
from tests.support.mcp_peers.calls import answer_question, start_asking, steps_until_settled
from tests.support.model import calls, says

NEW = "2026-07-28"
ENVELOPE: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": NEW,
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
}


@claim("front:revisions")
@pytest.mark.parametrize("mode", ["legacy", "auto", NEW])
@pytest.mark.parametrize(
    ("action", "output"), [("accept", "wipe ran"), ("decline", "user rejected MCP tool call")]
)
async def test_a_client_of_the_sdk_is_asked_in_its_own_revision(
    tmp_path: Path, mode: Any, action: Any, output: str
) -> None:
    peer = stdio_server("peer", required="true")
    asked: list[str] = []

    async def answer(context: Any, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action=action)

    async with (
        scripted(tmp_path, peer) as model,
        Client(pipe(tmp_path), mode=mode, elicitation_callback=answer) as client,
    ):
        assert client.protocol_version == (NEW if mode != "legacy" else "2025-11-25")
        assert [tool.name for tool in (await client.list_tools()).tools] == ["codex", "codex-reply"]
        model.scripts += [calls(WIPE, {**WIPE, "call_id": "call_2"}), says("Done.")]
        result = await client.call_tool("codex", {"prompt": "Wipe it."})
        assert isinstance(result.structured_content, dict)
        thread_id = result.structured_content["threadId"]
        assert result.structured_content == {"threadId": thread_id, "content": "Done."}
        assert result.is_error is False
        outputs = [i for i in model.requests[-1]["input"] if i["type"] == "function_call_output"]
        assert [output in str(item["output"]) for item in outputs] == [True, True]
    assert asked == ['Allow the peer MCP server to run tool "wipe"?'] * 2


@claim("front:revisions")
async def test_a_client_that_cannot_be_asked_declines(tmp_path: Path) -> None:
    peer = stdio_server("peer", required="true")
    async with scripted(tmp_path, peer) as model, Client(pipe(tmp_path), mode=NEW) as client:
        model.scripts += [calls(WIPE), says("Done.")]
        await client.call_tool("codex", {"prompt": "Wipe it."})
        [output] = [i for i in model.requests[-1]["input"] if i["type"] == "function_call_output"]
        assert "user rejected MCP tool call" in str(output["output"])


async def stateless(client: Front, method: str, **params: Any) -> Any:
    meta = {**ENVELOPE, **params.pop("meta", {})}
    return await client.request(method, {**params, "_meta": meta})


@claim("front:revisions")
@pytest.mark.parametrize(
    ("method", "params", "code", "data"),
    [
        (
            "tools/list",
            {"meta": {"io.modelcontextprotocol/protocolVersion": "2031-01-01"}},
            -32022,
            {
                "supported": [NEW, "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"],
                "requested": "2031-01-01",
            },
        ),
        ("tools/list", {"meta": {"io.modelcontextprotocol/protocolVersion": 5}}, -32602, None),
        (
            "tools/list",
            {"meta": {"io.modelcontextprotocol/clientCapabilities": None}},
            -32602,
            None,
        ),
        ("ping", {}, -32601, {"code": "methodNotFound"}),
        ("subscriptions/listen", {"notifications": {}}, -32601, {"code": "methodNotFound"}),
        *(
            (
                "tools/call",
                {"name": "codex", "arguments": {}, "requestState": state, "inputResponses": {}},
                -32602,
                {"reason": "invalid_request_state"},
            )
            for state in ("unknown", 5)
        ),
    ],
)
async def test_a_request_that_makes_no_sense_is_refused(
    tmp_path: Path, method: str, params: Any, code: int, data: Any
) -> None:
    async with scripted(tmp_path), front(tmp_path) as client:
        with pytest.raises(MCPError) as caught:
            await stateless(client, method, **params)
        assert (caught.value.error.code, caught.value.error.data) == (code, data)
        # Both revisions go on, on the same pipe.
        assert await client.request("ping") == {}
        found = await stateless(client, "server/discover")
        assert (found["supportedVersions"], found["resultType"]) == ([NEW], "complete")
        listed = await stateless(client, "tools/list")
        assert [tool["name"] for tool in listed["tools"]] == ["codex", "codex-reply"]
        assert (listed["ttlMs"], listed["cacheScope"]) == (0, "private")


@claim("front:revisions")
async def test_a_handshake_after_requests_without_one_is_answered(tmp_path: Path) -> None:
    later = {"protocolVersion": "2025-06-18", "clientInfo": INFO, "capabilities": {}}
    async with scripted(tmp_path), pipe(tmp_path) as streams, anyio.create_task_group() as tasks:
        dispatcher: Any = JSONRPCDispatcher(*streams)
        client = Front(dispatcher)
        await tasks.start(dispatcher.run, client.answer, client.on_notification)
        await stateless(client, "server/discover")
        hello = await client.request("initialize", later)
        assert (hello["protocolVersion"], hello["serverInfo"]["name"]) == (
            "2025-06-18",
            "codex-mcp-server",
        )
        for _ in range(2):
            assert len((await stateless(client, "tools/list"))["tools"]) == 2
            assert len((await client.request("tools/list"))["tools"]) == 2
        tasks.cancel_scope.cancel()


@claim("front:revisions")
async def test_a_call_that_is_asked_about_belongs_to_its_arguments(tmp_path: Path) -> None:
    peer = stdio_server("peer", required="true")
    async with scripted(tmp_path, peer) as model, front(tmp_path) as client:
        model.scripts += [calls(WIPE), says("Done.")]
        call: dict[str, Any] = {"name": "codex", "arguments": {"prompt": "Wipe it."}}
        asked = await stateless(client, "tools/call", **call)
        assert asked["resultType"] == "input_required"
        [(key, question)] = asked["inputRequests"].items()
        assert question["method"] == "elicitation/create"
        assert question["params"]["codex_mcp_server"] == "peer"
        state = {"requestState": asked["requestState"]}
        answers = {"inputResponses": {key: {"action": "accept"}}}
        other = {**call, "arguments": {"prompt": "Another."}}
        for wrong in ({**other, **state, **answers}, {**call, **state}):
            with pytest.raises(MCPError) as caught:
                await stateless(client, "tools/call", **wrong)
            assert caught.value.error.code == -32602
        # Without the answer it is asked again.
        again = await stateless(client, "tools/call", **call, **state, inputResponses={"x": 1})
        assert again["inputRequests"] == asked["inputRequests"]
        with pytest.raises(MCPError):
            await stateless(client, "tools/call", **call, **state, **answers)
        state = {"requestState": again["requestState"]}
        done = await stateless(client, "tools/call", **call, **state, **answers)
        thread_id = done["structuredContent"]["threadId"]
        assert {key: done[key] for key in ("content", "structuredContent")} == result_of(
            "Done.", thread_id
        )
        with pytest.raises(MCPError):
            await stateless(client, "tools/call", **call, **state, **answers)


@claim("front:revisions")
async def test_a_call_whose_client_does_not_come_back_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_calls, "HELD_S", 0.01)
    peer = stdio_server("peer", required="true")
    async with scripted(tmp_path, peer) as model, front(tmp_path) as client:
        model.scripts += [calls(WIPE), says("Done.")]
        call: dict[str, Any] = {"name": "codex", "arguments": {"prompt": "Wipe it."}}
        asked = await stateless(client, "tools/call", **call)
        await client.until("turn_aborted")
        state = {"requestState": asked["requestState"], "inputResponses": {}}
        with anyio.fail_after(WAIT_S):
            while True:
                try:
                    await stateless(client, "tools/call", **call, **state)
                except MCPError as exc:
                    if exc.error.data == {"reason": "invalid_request_state"}:
                        break


@claim("front:revisions")
@pytest.mark.process
@pytest.mark.parametrize(("protocol", "spoken"), [("2025", "2025-06-18"), (NEW, NEW)])
@pytest.mark.parametrize(
    ("action", "output"), [("accept", "wipe ran"), ("decline", "user rejected MCP tool call")]
)
async def test_an_app_server_uses_another_one_and_asks_its_own_client(
    tmp_path: Path, protocol: str, spoken: str, action: str, output: str
) -> None:
    inner, outer = tmp_path / "inner", tmp_path / "outer"
    inner.mkdir()
    outer.mkdir()
    words = ("mcp-server", "--home", str(inner))
    program, *arguments = await forked_command("app_server.cli.entry", *words)
    config = (
        f"[mcp_servers.inner]\ncommand = {json.dumps(program)}\nargs = {json.dumps(arguments)}\n"
        f'protocol = "{protocol}"\ndefault_tools_approval_mode = "approve"\n'
        "startup_timeout_sec = 120\n"
    )
    call = {"namespace": "mcp__inner", "name": "codex", "arguments": {"prompt": "Wipe it."}}
    async with (
        scripted(inner, stdio_server("peer", required="true")) as model,
        serve(outer, config=config) as served,
        served.client() as client,
    ):
        thread_id = await client.start_thread()
        assert (await steps_until_settled(client, "inner"))["inner"][-1] == ("ready", None)
        [row] = (await client.call("mcpServerStatus/list", {"threadId": thread_id}))["data"]
        assert row["protocolVersion"] == spoken
        assert sorted(row["tools"]) == ["codex", "codex-reply"]
        model.scripts += [calls(WIPE), says("Done.")]
        turn_id = await start_asking(served, client, thread_id, call)
        asked = await answer_question(client, {"result": {"action": action, "content": {}}})
        assert {key: asked[key] for key in ("threadId", "turnId", "serverName", "message")} == {
            "threadId": thread_id,
            "turnId": turn_id,
            "serverName": "inner",
            "message": 'Allow the peer MCP server to run tool "wipe"?',
        }
        messages = await client.until("turn/completed")
        [item] = [
            message["params"]["item"]
            for message in messages
            if message.get("method") == "item/completed" and "server" in message["params"]["item"]
        ]
        assert item["status"] == "completed"
        assert item["result"]["content"] == [{"type": "text", "text": "Done."}]
        [said] = [i for i in model.requests[-1]["input"] if i["type"] == "function_call_output"]
        assert output in str(said["output"])
