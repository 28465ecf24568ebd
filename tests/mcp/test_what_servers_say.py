"""mcp: whatever a server says of a call, the turn goes on, and clients and models can read it."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import to_json

from app_server.mcp.catalog.config import ServerConfig, StdioTransport
from app_server.mcp.elicitation import MAX_QUESTION_BYTES
from app_server.mcp.tools.call_contents import MAX_CAUSE_BYTES
from app_server.mcp.tools.naming import RawName, VisibleName
from app_server.mcp.tools.table import Tool
from app_server.mcp_wire.messages import (
    JSONRPCError,
    JSONRPCResponse,
    NoMessage,
    parse_message,
    read_message,
)
from app_server.tools.mcp.model_calls import (
    MAX_AT_ONCE,
    MAX_CHARS,
    PER_SECOND,
    ProgressRate,
    shortened,
)
from app_server.turns.approval.tools import ToolRequest, approval_form
from tests.support.harness import claim, serve
from tests.support.mcp_peers.calls import outputs_of
from tests.support.model import calls
from tests.support.paths import MCP_PEER

HOSTILE = MCP_PEER.with_name("hostile_peer.py")
DONE = '{"jsonrpc": "2.0", "id": ID, "result": {"content": [{"type": "text", "text": "done"}]}}\n'
LARGE_CHARS = 3_000_000


def line(message: Any) -> str:
    """Write a message; its id, if it is 0, becomes that of the call."""
    text = json.dumps({"jsonrpc": "2.0", **message})
    return (
        text.replace('"id": 0', '"id": ID').replace('"progressToken": 0', '"progressToken": TOKEN')
        + "\n"
    )


async def called(folder: Path, said: str, **keys: str) -> tuple[list[Any], Any, Any]:
    """Let a model call a server that says these lines.

    Returns the messages of the turn, the item of the call, and what the model reads of it.
    """
    (folder / "said").write_text(said)
    config = (
        "mcp_optional_startup_grace_ms = 30000\n"
        f'[mcp_servers.evil]\ncommand = "{sys.executable}"\n'
        f'args = ["{HOSTILE}", "says", "{folder / "said"}"]\n'
    )
    async with serve(folder / "home", config=config) as served, served.client() as client:
        served.model.scripts.append(calls({"namespace": "mcp__evil", "name": "act"}))
        thread_id = await client.start_thread(**keys)
        user_input = [{"type": "text", "text": "go"}]
        await client.call("turn/start", {"threadId": thread_id, "input": user_input})
        messages = await client.until("turn/completed")
        assert messages[-1]["params"]["turn"]["status"] == "completed"
        [item] = [
            message["params"]["item"]
            for message in messages
            if message.get("method") == "item/completed"
            and message["params"]["item"]["type"] == "mcpToolCall"
        ]
        [output] = outputs_of(served)
        return messages, item, output


@pytest.mark.process
@claim("mcp:hostile")
@pytest.mark.parametrize("content", ["text", {"type": "text"}, 5])
async def test_a_result_whose_content_is_no_list_has_none(tmp_path: Path, content: Any) -> None:
    result = {"content": content, "structuredContent": None, "isError": "maybe"}
    _, item, output = await called(tmp_path, line({"id": 0, "result": result}))
    assert (item["status"], item["result"]["content"]) == ("completed", [])
    assert len(output) == 1


@pytest.mark.process
@claim("mcp:hostile")
@pytest.mark.parametrize("answer", [{"result": None}, {"result": 5}, {"error": "no"}, {}])
async def test_an_answer_that_is_none_fails_its_call_at_once(tmp_path: Path, answer: Any) -> None:
    """It was waited for until the time of the call was over."""
    _, item, output = await called(tmp_path, line({"id": 0, **answer}))
    assert item["status"] == "failed"
    assert "Mcp error: -32603: the answer is none" in item["error"]["message"]
    assert output[1]["text"] == item["error"]["message"]


@pytest.mark.process
@claim("mcp:hostile")
async def test_what_a_server_says_of_a_failure_is_cut_for_clients_and_models(
    tmp_path: Path,
) -> None:
    large = "x" * LARGE_CHARS
    error = {"code": 10**12, "message": large, "data": {"more": large}}
    _, item, output = await called(tmp_path, line({"id": 0, "error": error}))
    assert item["error"]["message"].startswith("tool call error: tool call failed for `evil/act`")
    assert len(item["error"]["message"]) < MAX_CAUSE_BYTES + 200
    assert output[1]["text"] == item["error"]["message"]


@pytest.mark.process
@claim("mcp:progress")
async def test_progress_that_is_long_is_cut_and_a_flood_of_it_is_thinned_out(
    tmp_path: Path,
) -> None:
    """All of it would cut off a client that reads more slowly than a server writes."""
    large = "x" * LARGE_CHARS
    progress = [
        {"progressToken": 0, "progress": number, "message": large if number == 1 else "m"}
        for number in range(1, 5_000)
    ]
    said = "".join(
        line({"method": "notifications/progress", "params": params}) for params in progress
    )
    messages, item, _ = await called(tmp_path, said + DONE)
    assert item["status"] == "completed"
    passed_on = [
        message["params"]["message"]
        for message in messages
        if message.get("method") == "item/mcpToolCall/progress"
    ]
    assert passed_on[0] == shortened(large)
    assert MAX_AT_ONCE <= len(passed_on) < 2_000
    assert set(passed_on[1:]) == {"m"}


def test_progress_passes_in_a_burst_and_then_at_a_rate() -> None:
    now = 100.0
    rate = ProgressRate(lambda: now)
    assert [rate.lets_one_pass() for _ in range(MAX_AT_ONCE + 2)] == [
        *[True] * MAX_AT_ONCE, False, False,
    ]  # fmt: skip
    now += 2 / PER_SECOND + 0.001
    assert [rate.lets_one_pass() for _ in range(3)] == [True, True, False]
    now += 1000
    assert sum(rate.lets_one_pass() for _ in range(2 * MAX_AT_ONCE)) == MAX_AT_ONCE
    assert shortened("short") == "short"
    assert shortened("x" * (MAX_CHARS + 1)) == "x" * (MAX_CHARS - 1) + "…"


@pytest.mark.process
@claim("elicitation:invalid")
async def test_a_question_that_no_client_could_read_is_not_asked(tmp_path: Path) -> None:
    """Some of them together closed the connections of all clients of the thread."""
    form = {"requestedSchema": {"type": "object", "properties": {}}}
    said = "".join(
        line({"id": f"q{n}", "method": "elicitation/create", "params": {**form, "message": text}})
        for n, text in enumerate(["x" * LARGE_CHARS, "x" * MAX_QUESTION_BYTES])
    )
    messages, item, _ = await called(tmp_path, said + DONE, approvalPolicy="on-request")
    assert item["status"] == "completed"
    assert not [m for m in messages if m.get("method") == "mcpServer/elicitation/request"]


def test_the_question_about_a_call_fits_into_a_message_whatever_the_tool_says() -> None:
    raw = RawName("evil", "act")
    large = "x" * LARGE_CHARS
    definition: dict[str, Any] = {
        "name": "act",
        "title": large,
        "description": large,
        "annotations": {"title": large, "readOnlyHint": True},
    }
    config = ServerConfig("evil", StdioTransport("evil"))
    tool = Tool(raw, VisibleName("mcp__evil", "act"), definition, config)
    for size, shown in ((10, 1), (890_000, 0)):
        arguments = {"text": "x" * size}
        question = approval_form(ToolRequest("t", "u", "call", tool, arguments))
        assert isinstance(question.meta, dict)
        assert question.meta["tool_params"] == arguments
        assert len(question.meta["tool_params_display"]) == shown
        assert len(to_json(question, by_alias=True)) < 1024 * 1024


@pytest.mark.process
@claim("mcp:hostile")
async def test_ids_and_tokens_of_any_length_end_no_connection(tmp_path: Path) -> None:
    digits = "9" * 5000
    token = {"progressToken": digits, "progress": 1}
    said = (
        line({"id": digits, "result": {}})
        + line({"id": digits, "method": "ping"})
        + line({"method": "notifications/progress", "params": token})
    )
    _, item, _ = await called(tmp_path, said + DONE)
    assert item["status"] == "completed"


@pytest.mark.parametrize("filling", ["", "y" * 100_000], ids=["small", "large"])
async def test_half_a_character_is_replaced_and_the_rest_is_read(filling: str) -> None:
    """JavaScript cuts texts between the halves of a character, and writes a half as an escape."""
    for half, whole in (
        (r"\ud83d", "�"),
        (r"a\ude00b", "a�b"),
        (r"\ud83d\ud83d\ude00", "�😀"),
        (r"\\ud83d\ud83d", "\\ud83d�"),
    ):
        text = f'{{"jsonrpc":"2.0","id":1,"result":{{"t":"{half}","n":[1e5,"{filling}"]}}}}'
        message = await read_message(text.encode())
        assert isinstance(message, JSONRPCResponse)
        assert message.result == {"t": whole, "n": [1e5, filling]}


def test_what_is_no_json_is_none_also_where_a_character_was_cut() -> None:
    for text in (r'{"id":1,"result":{"t":"\ud83d"}', r'["\u12', '["\\ud83d",' + "[" * 100_000):
        with pytest.raises(NoMessage, match="Invalid JSON"):
            parse_message(text)
    with pytest.raises(NoMessage):
        parse_message('{"jsonrpc":"2.0","id":true,"result":null}')
    error = parse_message('{"jsonrpc":"2.0","id":"7","result":null}')
    assert isinstance(error, JSONRPCError)
    assert error.id == "7"
