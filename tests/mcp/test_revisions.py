"""mcp: servers of both revisions, on both transports: clients and models see the same."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.mcp.both_revisions import ASKING, SETTINGS, Running, Setting, running
from tests.support.harness import WAIT_S, claim, serve
from tests.support.mcp_peers.calls import (
    answer_question,
    call_items,
    outputs_of,
    raw_call,
    start_asking,
)
from tests.support.mcp_peers.sdk_peer import LEVELS
from tests.support.mcp_peers.web_servers import listening

EVERYWHERE = pytest.mark.parametrize("setting", SETTINGS, ids=str)
WHERE_IT_MAY_ASK = pytest.mark.parametrize("setting", ASKING, ids=str)


@claim("mcp:revisions")
@pytest.mark.parametrize("pinned", ["configured", "pinned"])
@EVERYWHERE
async def test_the_configured_revision_is_spoken_and_its_tools_are_called(
    tmp_path: Path, setting: Setting, pinned: str
) -> None:
    if pinned == "pinned":
        setting = replace(setting, protocol="2026-07-28")
    async with running(tmp_path, setting) as run:
        [item], [output] = await run.call(raw_call("progress"))
        content = [{"type": "text", "text": "progress ran"}]
        assert item["result"] == {"content": content, "structuredContent": None, "_meta": None}
        assert output[-1] == {"type": "input_text", "text": "progress ran"}
        meta = json.loads(await run.tool("meta"))
        named = [key for key in meta if key.startswith("io.modelcontextprotocol/")]
        # Three say who asks, and one which messages of the log are wanted.
        assert len(named) == (4 if setting.is_stateless else 0)
        assert meta["threadId"] == run.thread_id


@claim("mcp:revisions")
@WHERE_IT_MAY_ASK
async def test_a_form_is_asked_during_its_turn(tmp_path: Path, setting: Setting) -> None:
    async with running(tmp_path, setting) as run:
        turn_id = await start_asking(run.served, run.client, run.thread_id, raw_call("form"))
        asked = await answer_question(
            run.client, {"result": {"action": "accept", "content": {"which": "this"}}}
        )
        await run.client.wait_for("turn/completed")
    schema = {"type": "object", "properties": {"which": {"type": "string"}}}
    assert asked == {
        "threadId": run.thread_id,
        "turnId": turn_id,
        "serverName": "raw",
        "mode": "form",
        "message": "Which?",
        "requestedSchema": schema,
        "_meta": None,
    }
    [output] = outputs_of(run.served)
    assert json.loads(output[1]["text"]) == {"action": "accept", "content": {"which": "this"}}


@claim("mcp:revisions")
@WHERE_IT_MAY_ASK
async def test_a_link_is_asked_with_an_id_in_both_revisions(
    tmp_path: Path, setting: Setting
) -> None:
    async with running(tmp_path, setting) as run:
        await start_asking(run.served, run.client, run.thread_id, raw_call("link"))
        asked = await answer_question(run.client, {"result": {"action": "decline"}})
        await run.client.wait_for("turn/completed")
    assert (asked["mode"], asked["url"]) == ("url", "https://example.com/there")
    assert asked["elicitationId"]
    [output] = outputs_of(run.served)
    assert json.loads(output[1]["text"]) == {"action": "decline"}


@claim("mcp:revisions")
@pytest.mark.parametrize(
    ("tool", "method"), [("sample", "sampling/createMessage"), ("roots", "roots/list")]
)
@WHERE_IT_MAY_ASK
async def test_what_is_not_offered_is_refused_with_a_reason(
    tmp_path: Path, setting: Setting, tool: str, method: str
) -> None:
    async with running(tmp_path, setting) as run:
        [item], _ = await run.call(raw_call(tool))
        assert item["status"] == "failed"
        assert f"Mcp error: -32601: Method not found: {method}" in item["error"]["message"]
        # It goes on.
        assert await run.tool("progress") == "progress ran"


@claim("mcp:revisions")
@EVERYWHERE
async def test_progress_reaches_the_item(tmp_path: Path, setting: Setting) -> None:
    async with running(tmp_path, setting) as run:
        await start_asking(run.served, run.client, run.thread_id, raw_call("progress"))
        progress = await run.client.wait_for("item/mcpToolCall/progress")
        assert progress["params"]["message"] == "half way"
        await run.client.wait_for("turn/completed")


@claim("mcp:revisions")
@EVERYWHERE
async def test_an_interrupt_cancels_the_call_at_the_server(
    tmp_path: Path, setting: Setting
) -> None:
    async with running(tmp_path, setting) as run:
        await start_asking(run.served, run.client, run.thread_id, raw_call("slow"))
        if run.peer is None:
            await run.until_said("a call waits")
        else:
            with anyio.fail_after(WAIT_S):
                await run.peer.started.wait()
        await run.client.call("turn/interrupt", {"threadId": run.thread_id, "turnId": ""})
        await run.client.wait_for("turn/completed")
        if run.peer is None:
            await run.until_said("a call was cancelled")
        else:
            with anyio.fail_after(WAIT_S):
                await run.peer.cancelled.wait()
        assert await run.tool("progress") == "progress ran"


@claim("mcp:revisions", "mcp:question-call")
@pytest.mark.parametrize(
    "setting", [one for one in ASKING if one.questions_name_their_call], ids=str
)
@pytest.mark.parametrize("share", ["thread", "home"])
async def test_a_question_has_the_thread_and_the_turn_of_the_call_that_led_to_it(
    tmp_path: Path, setting: Setting, share: str
) -> None:
    twice = {"times": 2}
    async with running(tmp_path, setting, share=f'"{share}"') as run:
        callers: list[tuple[str, str | None]] = []
        questions = []
        for thread_id in (run.thread_id, await run.new_thread()):
            asking = raw_call("rounds", twice)
            turn_id = await start_asking(run.served, run.client, thread_id, asking)
            callers.append((thread_id, turn_id))
            questions.append(await run.client.wait_for("mcpServer/elicitation/request"))
            direct = {"server": "raw", "tool": "rounds", "arguments": twice}
            await run.client.request("mcpServer/tool/call", {**direct, "threadId": thread_id})
            callers.append((thread_id, None))
            questions.append(await run.client.wait_for("mcpServer/elicitation/request"))
        # Each question that is answered now leads to the next one of the same call.
        for question in questions.copy():
            reply = {"action": "accept", "content": {}}
            await run.client.send({"id": question["id"], "result": reply})
            questions.append(await run.client.wait_for("mcpServer/elicitation/request"))
        asked = [(one["params"]["threadId"], one["params"]["turnId"]) for one in questions]
        assert asked == callers * 2
        for question in questions[4:]:
            await run.client.send({"id": question["id"], "result": {"action": "accept"}})
        for _ in range(2):
            await run.client.wait_for("turn/completed")
    outputs = Counter(output[1]["text"] for output in outputs_of(run.served))
    assert outputs == {"asked": 1}


@claim("mcp:log-messages")
@pytest.mark.parametrize("share", ["thread", "home"])
@EVERYWHERE
async def test_messages_of_the_log_are_read_in_the_thread_of_their_call(
    tmp_path: Path, setting: Setting, share: str
) -> None:
    async with running(tmp_path, setting, share=f'"{share}"') as run:
        threads = [run.thread_id, await run.new_thread()]
        for thread_id in threads:
            said = {"of": thread_id, "api_key": "abcdefgh"}
            params = {"threadId": thread_id, "server": "raw", "tool": "log", "arguments": said}
            await run.client.call("mcpServer/tool/call", params)
        found = await run.client.call("mcpServer/output/read", {"name": "raw"})
    # Without a handshake a level has to be asked for.
    levels = LEVELS[1:] if setting.is_stateless else LEVELS
    for output in found["data"]:
        lines = [line for line in output["text"].splitlines() if line.startswith("[")]
        data = f'{{"of":"{output["threadId"]}","api_key":***}}'
        assert lines == [f"[{level} lib] {data}" for level in levels]
    assert [output["threadId"] for output in found["data"]] == threads


@claim("mcp:question-call")
@WHERE_IT_MAY_ASK
async def test_a_read_resource_may_ask_in_its_turn(tmp_path: Path, setting: Setting) -> None:
    async with running(tmp_path, setting) as run:
        read = {"name": "read_mcp_resource", "arguments": {"server": "raw", "uri": "mem://a"}}
        turn_id = await start_asking(run.served, run.client, run.thread_id, read)
        asked = await answer_question(run.client, {"result": {"action": "decline"}})
        await run.client.wait_for("turn/completed")
        assert (asked["threadId"], asked["turnId"]) == (run.thread_id, turn_id)
        [output] = outputs_of(run.served)
        assert json.loads(json.loads(output)["contents"][0]["text"]) == {"action": "decline"}


@claim("mcp:question-call")
@pytest.mark.parametrize("setting", [one for one in ASKING if not one.is_stateless], ids=str)
@pytest.mark.parametrize("arguments", [{"server": "raw"}, {}], ids=["one", "all"])
async def test_a_list_may_ask_in_its_turn(
    tmp_path: Path, setting: Setting, arguments: dict[str, str]
) -> None:
    async with running(tmp_path, setting) as run:
        listing = {"name": "list_mcp_resource_templates", "arguments": arguments}
        turn_id = await start_asking(run.served, run.client, run.thread_id, listing)
        asked = await answer_question(run.client, {"result": {"action": "decline"}})
        await run.client.wait_for("turn/completed")
        assert (asked["threadId"], asked["turnId"]) == (run.thread_id, turn_id)
        [output] = outputs_of(run.served)
        assert json.loads(output)["resourceTemplates"][0]["name"] == "decline"


@claim("mcp:revisions")
@WHERE_IT_MAY_ASK
async def test_an_interrupt_withdraws_a_question(tmp_path: Path, setting: Setting) -> None:
    async with running(tmp_path, setting) as run:
        await start_asking(run.served, run.client, run.thread_id, raw_call("form"))
        question = await run.client.wait_for("mcpServer/elicitation/request")
        await run.client.call("turn/interrupt", {"threadId": run.thread_id, "turnId": ""})
        # In which order, depends on who withdraws it: the turn, or the server itself.
        withdrawn = await run.client.wait_for("serverRequest/resolved")
        assert withdrawn["params"]["requestId"] == question["id"]
        await run.client.send({"id": question["id"], "result": {"action": "accept"}})
        assert await run.tool("progress") == "progress ran"


@claim("mcp:revisions")
@EVERYWHERE
async def test_the_sandbox_and_the_clients_keys_are_sent(tmp_path: Path, setting: Setting) -> None:
    async with running(tmp_path, setting) as run:
        keys = {"mcpMetaByServer": {"raw": {"mine": 1}}}
        _, [output] = await run.call(raw_call("meta"), **keys)
        meta = json.loads(output[1]["text"])
        assert meta["mine"] == 1
        assert meta["codex/sandbox-state-meta"]["permissionProfile"]["type"] == "managed"
        assert meta["x-codex-turn-metadata"]["thread_id"] == run.thread_id


@claim("mcp:revisions")
@pytest.mark.parametrize(("times", "is_answered"), [(10, True), (11, False)])
@WHERE_IT_MAY_ASK
async def test_a_call_asks_ten_times_at_most_without_a_session(
    tmp_path: Path, setting: Setting, times: int, is_answered: bool
) -> None:
    async with running(tmp_path, setting) as run:
        asking = raw_call("rounds", {"times": times})
        await start_asking(run.served, run.client, run.thread_id, asking)
        for _ in range(10 if setting.is_stateless else times):
            await answer_question(run.client, {"result": {"action": "accept", "content": {}}})
        await run.client.wait_for("turn/completed")
    [output] = outputs_of(run.served)
    if is_answered or not setting.is_stateless:
        assert output[1]["text"] == "asked"
    else:
        assert "the server asked for input more than 10 times" in str(output)


@claim("mcp:revisions")
@WHERE_IT_MAY_ASK
async def test_a_change_of_the_tools_is_heard(tmp_path: Path, setting: Setting) -> None:
    follows = "[features]\nmcp_tool_list_changed = true\n"
    async with running(tmp_path, setting, follows) as run:
        before = await run.tools()
        [item], _ = await run.call(raw_call("grow"))
        assert item["status"] == "completed"
        with anyio.fail_after(WAIT_S):
            while await run.tools() == before:
                await run.client.turn(run.thread_id, "go on")


@claim("mcp:revisions")
async def test_arguments_go_into_headers_where_the_tool_wants_it(tmp_path: Path) -> None:
    setting = Setting("http", "auto")
    async with running(tmp_path, setting) as run:
        arguments = {"region": "nähe ", "deep": {"number": 7}}
        headers = json.loads(await run.tool("headers", arguments=arguments))
        assert headers == {
            "mcp-method": "tools/call",
            "mcp-name": "headers",
            "mcp-param-number": "7",
            "mcp-param-region": "=?base64?bsOkaGUg?=",
            "mcp-protocol-version": "2026-07-28",
        }
        assert "broken" not in await run.tools()


@claim("mcp:revisions")
@pytest.mark.parametrize("setting", [Setting("stdio", "auto"), Setting("http", "2025")], ids=str)
async def test_a_tool_with_a_bad_header_is_kept_where_there_are_no_headers(
    tmp_path: Path, setting: Setting
) -> None:
    async with running(tmp_path, setting) as run:
        assert "broken" in await run.tools()


class Sessionless:
    """A server of a handshake without session, which asks in the responses to calls.

    A call of its tool `ask` asks what its arguments say, and gives the answer.
    """

    def __init__(self) -> None:
        self.answers: dict[str, anyio.Event] = {}
        self.given: dict[str, Any] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while (message := await receive()).get("more_body"):
            body += message["body"]
        body += message.get("body", b"")
        found = json.loads(body) if body else {}
        if found.get("method") == "tools/call":
            await self._ask(found, send)
            return
        if "method" not in found and "id" in found:
            self.given[found["id"]] = {key: found[key] for key in found if key != "jsonrpc"}
            self.answers[found["id"]].set()
        results: dict[str, Any] = {
            "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}},
            "tools/list": {"tools": [ASK]},
        }
        result = results.get(found.get("method", ""))
        if result is None:
            status = 202 if "jsonrpc" in found else 405
            await send({"type": "http.response.start", "status": status, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        answer = {"jsonrpc": "2.0", "id": found["id"], "result": result}
        kind = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": kind})
        await send({"type": "http.response.body", "body": json.dumps(answer).encode()})

    async def _ask(self, call: Any, send: Any) -> None:
        kind = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": kind})
        name = f"question-{len(self.answers)}"
        answered = self.answers[name] = anyio.Event()
        asked = {"jsonrpc": "2.0", "id": name, **call["params"]["arguments"]}
        await send({"type": "http.response.body", "body": event(asked), "more_body": True})
        await answered.wait()
        given = {key: self.given[name][key] for key in self.given[name] if key != "id"}
        result = {"content": [{"type": "text", "text": json.dumps(given)}]}
        body = event({"jsonrpc": "2.0", "id": call["id"], "result": result})
        await send({"type": "http.response.body", "body": body})


ASK = {"name": "ask", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}


def event(message: Any) -> bytes:
    return b"data: %b\n\n" % json.dumps(message).encode()


@claim("mcp:revisions", "mcp:question-call")
async def test_a_handshake_without_session_asks_each_thread_what_its_own_call_led_to(
    tmp_path: Path,
) -> None:
    form = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
    asking = raw_call("ask", {"method": "elicitation/create", "params": form})
    async with listening(Sessionless()) as port:
        config = f'[mcp_servers.raw]\nprotocol = "2025"\nurl = "http://127.0.0.1:{port}/mcp"\n'
        async with serve(tmp_path, config=config) as served, served.client() as client:
            run = Running(served, client, "", None)
            # The first one finds out that there is no session; the others share.
            threads = [await run.new_thread() for _ in range(3)]
            rows = [
                (await client.call("mcpServerStatus/list", {"threadId": one}))["data"][0]
                for one in threads
            ]
            assert [row["sharedBy"] for row in rows] == [1, 2, 2]
            questions = []
            for thread_id in threads:
                turn_id = await start_asking(served, client, thread_id, asking)
                asked = await client.wait_for("mcpServer/elicitation/request")
                assert (asked["params"]["threadId"], asked["params"]["turnId"]) == (
                    thread_id,
                    turn_id,
                )
                questions.append(asked)
            for number, asked in reversed([*enumerate(questions)]):
                reply = {"action": "accept", "content": {"n": number}}
                await client.send({"id": asked["id"], "result": reply})
                await client.wait_for("turn/completed")
                [output] = outputs_of(served)
                assert json.loads(output[1]["text"]) == {"result": reply}
            for method in ("sampling/createMessage", "roots/list"):
                _, [output] = await call_items(
                    served, client, threads[2], raw_call("ask", {"method": method, "params": {}})
                )
                error = {"code": -32601, "message": f"Method not found: {method}"}
                assert json.loads(output[1]["text"]) == {"error": error}
