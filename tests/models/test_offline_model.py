"""turns: the built-in model."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from app_server.models import offline
from tests.support.harness import (
    claim,
    serve,
)
from tests.support.turns import raw, text_input


@claim("model:offline")
async def test_the_offline_model_answers_through_the_same_client(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        started = await client.call("thread/start", {"modelProvider": "offline"})
        assert started["modelProvider"] == "offline"
        thread_id = started["thread"]["id"]
        await client.call("thread/inject_items", {"threadId": thread_id, "items": [raw("news")]})
        await client.call("turn/start", {"threadId": thread_id, "input": text_input("hello you")})
        messages = await client.until("turn/completed")
        text = (
            "This is the offline model: it repeats what it is told. You said: hello you "
            "I was also told: news"
        )
        assert messages[-1]["params"]["turn"]["items"][0]["text"] == text
        deltas = [m for m in messages if m["method"] == "item/agentMessage/delta"]
        assert "".join(m["params"]["delta"] for m in deltas) == text
        assert len(deltas) > 10
        turn = await client.turn(thread_id, "/tool no.such {}")
        assert turn["items"][0]["text"].endswith("There is no tool no.such.")
        assert served.model.requests == []


@pytest.mark.parametrize(("content", "status"), [(b"{", 400), (b"5", 400), (b"x" * 2000, 413)])
async def test_the_offline_model_refuses_nonsense(content: bytes, status: int) -> None:
    async with offline.serve_offline_model(max_request_bytes=1000) as url:
        host, port = url.removeprefix("http://").removesuffix("/v1").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            b"POST /v1/responses HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
            b"content-length: %d\r\n\r\n%b" % (len(content), content)
        )
        head = await reader.readline()
        writer.close()
        await writer.wait_closed()
    assert head.split()[1] == str(status).encode()


def test_the_offline_model_is_deterministic() -> None:
    request: dict[str, Any] = {"input": [raw("x", "user"), 5], "tools": []}
    assert offline.reply(request) == offline.reply(request)
    assert offline.reply({})["content"][0]["text"].endswith("You said: ")
    output = {"type": "function_call_output", "output": [{"text": "a"}, {"text": 5}, 7]}
    assert offline.reply({"input": [output]})["content"][0]["text"] == "The tool answered: a"


@claim("model:offline-words")
def test_words_of_the_offline_model_call_functions() -> None:
    tools: list[dict[str, Any]] = [
        {"type": "function", "name": "exec_command"},
        {"type": "function", "name": "apply_patch"},
    ]

    def call(text: str) -> tuple[str, Any]:
        item = offline.reply({"input": [raw(text, "user")], "tools": tools})
        return item["name"], json.loads(item["arguments"])

    assert call('/tool exec_command {"cmd": "ls -l"}') == ("exec_command", {"cmd": "ls -l"})
    assert call("/exec ls -l | wc") == ("exec_command", {"cmd": "ls -l | wc"})
    name, arguments = call("/outside touch a")
    assert (name, arguments["cmd"], arguments["sandbox_permissions"]) == (
        "exec_command",
        "touch a",
        "require_escalated",
    )
    assert call("/patch *** Begin Patch\n*** End Patch") == (
        "apply_patch",
        {"input": "*** Begin Patch\n*** End Patch"},
    )
    # A word is one only at the beginning, and with a space behind it.
    for text in ("say /exec ls", "/execute ls"):
        said = offline.reply({"input": [raw(text, "user")], "tools": tools})
        assert said["content"][0]["text"].endswith(f"You said: {text}")
    output = {"type": "custom_tool_call_output", "call_id": "c", "output": "done"}
    answered = offline.reply({"input": [raw("/patch x", "user"), output], "tools": tools})
    assert answered["content"][0]["text"] == "The tool answered: done"
