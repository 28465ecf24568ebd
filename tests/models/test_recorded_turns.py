"""Whole turns with the streams that llama.cpp and vLLM were recorded with."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.harness import claim, serve, stdio_server
from tests.support.mcp_peers.calls import steps_until_settled
from tests.support.paths import RECORDINGS

STREAMS = RECORDINGS / "chat_completions"

READ = {
    "name": "read",
    "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}},
    "annotations": {"readOnlyHint": True},
}
ANSWERS = {
    "tools/list": {"tools": [READ]},
    "tools/call": {"content": [{"type": "text", "text": "its text"}]},
}


def message(text: str) -> dict[str, Any]:
    return {"type": "agentMessage", "text": text}


def reasoning(text: str) -> dict[str, Any]:
    return {"type": "reasoning", "content": [text]}


def call(path: str) -> dict[str, Any]:
    return {
        "type": "mcpToolCall",
        "server": "files",
        "tool": "read",
        "arguments": {"path": path},
        "status": "completed",
    }


def asked(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


def answered(call_id: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


LLAMA = ("LjRxHvwaFPgi8hHqIQSQFD0xQhjUYJcN", "zKlW7XDwAMrcdTXWpwTJlcr498nsmjVP")
VLLM = ("chatcmpl-tool-b2104c316edd6392", "chatcmpl-tool-bb71090537109491")

OUTPUT = "Wall time: {}\nOutput:\n\n"

NO_OBJECT = (
    "tool call error: tool call failed for `files/read`\n\nCaused by:\n"
    "    MCP tool arguments must be a JSON object, got false"
)

TURNS: dict[str, tuple[list[str], list[Any], list[Any]]] = {
    "llama.cpp": (
        ["llama_cpp_reasoning_text_and_calls", "llama_cpp_old_text"],
        [
            reasoning("We look at both files.\n"),
            message("I read them \u2014 now.\n"),
            call("a.txt"),
            call("b.txt"),
            message("Hello!"),
        ],
        [
            {
                "role": "assistant",
                "content": "I read them \u2014 now.\n",
                "tool_calls": [
                    asked(LLAMA[0], "mcp__files__read", '{"path": "a.txt"}'),
                    asked(LLAMA[1], "mcp__files__read", '{"path": "b.txt"}'),
                ],
            },
            answered(LLAMA[0], OUTPUT + "its text"),
            answered(LLAMA[1], OUTPUT + "its text"),
        ],
    ),
    "vLLM": (
        ["vllm_0_32_required_calls", "vllm_0_32_reasoning_and_text"],
        [
            {**call("a.txt"), "arguments": False, "status": "failed"},
            reasoning("\ufffdx"),
            message("\ufffd\x11i\ufffd\x06"),
        ],
        [
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [
                    asked(VLLM[0], "mcp__files__read", "false"),
                    asked(VLLM[1], "apply_patch", "false"),
                ],
            },
            answered(VLLM[0], OUTPUT + NO_OBJECT),
            answered(VLLM[1], "failed to parse function arguments: they must be a JSON object"),
        ],
    ),
}


@claim("chat:same")
@pytest.mark.parametrize("server", TURNS)
async def test_a_recorded_turn_is_run(tmp_path: Path, server: str) -> None:
    names, items, sent = TURNS[server]
    answers = tmp_path / "answers.json"
    answers.write_text(json.dumps(ANSWERS))
    config = stdio_server("files", "answers", str(answers))
    async with serve(tmp_path, config=config) as served, served.client() as client:
        served.model.scripts = [[(STREAMS / f"{name}.sse").read_bytes()] for name in names]
        overrides = {"model_providers.scripted.wire_api": "chat", "model_context_window": 100_000}
        thread_id = await client.start_thread(config=overrides)
        await steps_until_settled(client, "files")
        params = {"threadId": thread_id, "input": [{"type": "text", "text": "go"}]}
        await client.call("turn/start", params)
        seen: list[Any] = []
        for each in await client.until("turn/completed"):
            item = each.get("params", {}).get("item", {})
            if each.get("method") == "item/completed" and item["type"] != "userMessage":
                kept = ("type", "text", "content", "server", "tool", "arguments", "status")
                seen.append({key: item[key] for key in kept if key in item})
        assert seen == items
        sent_again = served.model.requests[-1]["messages"][-len(sent) :]
        for answer in sent_again[1:]:
            answer["content"] = re.sub(r"(?<=Wall time: ).*", "{}", answer["content"])
        assert sent_again == sent
