"""mcp: servers of both revisions, on both transports: clients and models see the same."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from tests.mcp.both_revisions import ASKING, SETTINGS, Setting, running
from tests.support.harness import WAIT_S, claim
from tests.support.mcp_peers.calls import answer_question, outputs_of, raw_call, start_asking
from tests.support.mcp_peers.sdk_peer import LEVELS

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
            await run.client.wait_for("item/started", lambda p: p["item"]["type"] == "mcpToolCall")
        else:
            with anyio.fail_after(WAIT_S):
                await run.peer.started.wait()
        await run.client.call("turn/interrupt", {"threadId": run.thread_id, "turnId": ""})
        await run.client.wait_for("turn/completed")
        if run.peer is not None:
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
