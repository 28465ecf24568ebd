"""Servers behind HTTP whose event streams never end: their calls fail, and nobody else waits."""

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from app_server.mcp.elicitation import MAX_OPEN_QUESTIONS
from app_server.mcp_wire.json_rpc_client import MAX_ASKED
from tests.support.harness import WAIT_S, claim, methods_of, serve
from tests.support.http_peer import HttpRequest, answering
from tests.support.large import Case, made
from tests.support.mcp_peers.calls import ALLOWED_MIB, peak_mib, settled

EVENTS = "content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
TOOL = {"name": "act", "inputSchema": {"type": "object"}}
QUESTION = "mcpServer/elicitation/request"


def event(method: str, **members: Any) -> bytes:
    return b"data: %b\n\n" % json.dumps({"jsonrpc": "2.0", "method": method, **members}).encode()


FORM = {"message": "Say", "requestedSchema": {"type": "object", "properties": {}}}
CHUNKS = {
    "comments": b": still here\n\n",
    "no-end-of-event": b"data: part\n",
    "no-end-of-line": b"data: " + b"x" * 65_536,
    "nonsense": b"data: {\n\n",
    "answers-to-nobody": b'data: {"jsonrpc":"2.0","id":"none","result":{}}\n\n',
    "messages": event("notifications/message", params={"level": "info", "data": "x"}),
    "changes": event("notifications/tools/list_changed"),
    "pings": event("ping", id=1),
    "questions": event("elicitation/create", id=1, params=FORM),
}


@asynccontextmanager
async def endless(
    chunks: Iterable[bytes], *, on: str, answers: list[Any] | None = None, tools: Any = (TOOL,)
) -> AsyncIterator[str]:
    """Serve MCP with a stream of chunks: of a call, or of the session; gives its URL.

    What is answered to its questions is added to `answers`.
    """

    async def answer(
        request: HttpRequest, _: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        message = json.loads(request.body) if request.body else {}
        method = message.get("method", request.method)
        if answers is not None and "result" in message:
            answers.append(message["result"])
        result: dict[str, Any] | None = {
            "initialize": {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": "x", "version": "1"},
            },
            "tools/list": {"tools": tools},
        }.get(method)
        if method == on:
            writer.write(f"HTTP/1.1 200 OK\r\n{EVENTS}".encode())
            for chunk in chunks:
                if writer.is_closing():
                    break
                writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                await writer.drain()
                await asyncio.sleep(0)
            return False
        if method == "tools/call":
            evil = {"text": "a" * 50_000 + "!"}
            result = {"content": [{"type": "text", "text": "done"}], "structuredContent": evil}
        if result is None:
            status = b"405 No" if method == "GET" else b"202 Accepted"
            writer.write(b"HTTP/1.1 %b\r\ncontent-length: 0\r\n\r\n" % status)
            return True
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
        # Whoever has a session is asked for its stream.
        writer.write(head.encode() + b"\r\nmcp-session-id: s\r\n\r\n" + body)
        return True

    async with answering(answer) as port:
        yield f"http://127.0.0.1:{port}/mcp"


@claim("mcp:hostile")
@pytest.mark.parametrize(
    ("kind", "on"),
    # The stream of a call has its answer, whatever id that says.
    [
        *((kind, "GET") for kind in CHUNKS),
        *((k, "tools/call") for k in CHUNKS if "nobody" not in k),
    ],
)
async def test_a_stream_without_an_end_harms_its_own_server_alone(
    tmp_path: Path, kind: str, on: str
) -> None:
    async with endless(itertools.repeat(CHUNKS[kind]), on=on) as url:
        # A call that is answered, or asks, may take its time; the others are to fail.
        limit_s = WAIT_S if kind == "questions" or on == "GET" else 0.1
        config = f'[mcp_servers.x]\nurl = "{url}"\ntool_timeout_sec = {limit_s}\n'
        async with (
            serve(tmp_path, config=config) as served,
            served.client() as client,
            served.client() as other,
        ):
            before = peak_mib()
            thread_id = await client.start_thread()
            status = "starting"
            # The stream of a session may ask before the server counts as ready.
            questions = list[Any]()
            while status == "starting":
                *before_it, message = await client.until("mcpServer/startupStatus/updated")
                questions += [one for one in before_it if one.get("method") == QUESTION]
                status = message["params"]["status"]
            assert status == "ready"
            call = {"threadId": thread_id, "server": "x", "tool": "act"}
            number = await client.request("mcpServer/tool/call", call)
            for _ in range(5):
                await other.call("thread/loaded/list", {})
            if kind == "questions":
                # The clock of the call stands still while somebody is asked.
                while len(questions) < 3:
                    questions.append(await client.wait_for(QUESTION))
                for asked in questions[:3]:
                    await client.send({"id": asked["id"], "result": {"action": "decline"}})
            else:
                answer = await client.answer(number)
                assert ("error" in answer) is (on == "tools/call"), answer
            await other.call("thread/loaded/list", {})
            assert peak_mib() - before < ALLOWED_MIB


@claim("mcp:hostile")
async def test_a_flood_of_questions_is_cancelled_above_the_bound(tmp_path: Path) -> None:
    asked = [event("elicitation/create", id=number, params=FORM) for number in range(500)]
    answers: list[Any] = []
    stream = itertools.chain(asked, itertools.repeat(CHUNKS["comments"]))
    async with endless(stream, on="tools/call", answers=answers) as url:
        config = f'[mcp_servers.x]\nurl = "{url}"\n'
        async with (
            serve(tmp_path, config=config) as served,
            served.client() as client,
            served.client() as other,
        ):
            thread_id = await client.start_thread()
            assert await settled(client, "x") == ("ready", None)
            call = {"threadId": thread_id, "server": "x", "tool": "act"}
            await client.request("mcpServer/tool/call", call)
            questions = [await client.wait_for(QUESTION) for _ in range(MAX_OPEN_QUESTIONS)]
            await other.call("thread/loaded/list", {})
            with anyio.fail_after(60):
                while len(answers) < len(asked) - MAX_OPEN_QUESTIONS - MAX_ASKED:
                    await anyio.sleep(0.01)
            assert {json.dumps(answer) for answer in answers} == {'{"action": "cancel"}'}
            await client.call("thread/loaded/list", {})
            assert QUESTION not in methods_of(client.take_kept())
            assert len({question["id"] for question in questions}) == MAX_OPEN_QUESTIONS


SLOW = {"type": "string", "pattern": "^(a+)+$", "minLength": 1}
"""Takes a library for regular expressions as long as the universe is old."""


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


SCHEMAS: dict[str, Case[dict[str, Any]]] = {
    "slow-pattern": {"properties": {"text": SLOW}, "patternProperties": {"^(a+)+$": SLOW}},
    "no-pattern": {"properties": {"text": {"type": "string", "pattern": "(["}}},
    "refers-to-itself": {
        "$ref": "#",
        "$defs": {"a": {"$ref": "#/$defs/a"}},
        "allOf": [{"$ref": "#"}],
    },
    "explodes": {
        "$ref": "#/$defs/d40",
        "$defs": {
            "d0": {"type": "string"},
            **{f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n - 1}"}] * 9} for n in range(1, 41)},
        },
    },
    "refers-elsewhere": {"$ref": "http://127.0.0.1:1/schema", "$schema": "file:///etc/passwd"},
    "deep": nested(90),
    "wide": lambda: {"properties": {f"p{n}": SLOW for n in range(20_000)}},
    "much-of-one": lambda: {"properties": {"text": {"enum": [str(n) for n in range(50_000)]}}},
    "nonsense": {"properties": [], "required": 7, "type": ["object", 3], "enum": {}, "anyOf": {}},
}


@claim("mcp:hostile")
@pytest.mark.parametrize("kind", SCHEMAS)
async def test_a_schema_that_explodes_takes_no_time(tmp_path: Path, kind: str) -> None:
    schema = {"type": "object", **made(SCHEMAS[kind])}
    tools = [TOOL, {**TOOL, "name": "evil", "inputSchema": schema, "outputSchema": schema}]
    async with endless((), on="none", tools=tools) as url:
        config = f'[mcp_servers.x]\nurl = "{url}"\n'
        async with serve(tmp_path, config=config) as served, served.client() as client:
            before_s, before = time.process_time(), peak_mib()
            thread_id = await client.start_thread()
            assert await settled(client, "x") == ("ready", None)
            arguments = {"text": "a" * 50_000 + "!"}
            call = {"threadId": thread_id, "server": "x", "arguments": arguments}
            for name in ("act", "evil"):
                answer = await client.call("mcpServer/tool/call", {**call, "tool": name})
                assert answer["content"] == [{"type": "text", "text": "done"}]
            # The model is sent the tools, and the turn goes on.
            assert (await client.turn(thread_id, "go"))["status"] == "completed"
            assert time.process_time() - before_s < WAIT_S
            assert peak_mib() - before < ALLOWED_MIB


@claim("mcp:hostile")
async def test_a_list_that_is_nested_too_deeply_fails_its_server_alone(tmp_path: Path) -> None:
    tools = [TOOL, {**TOOL, "name": "evil", "inputSchema": nested(400)}]
    async with endless((), on="none", tools=tools) as url:
        config = f'[mcp_servers.x]\nurl = "{url}"\n'
        async with serve(tmp_path, config=config) as served, served.client() as client:
            thread_id = await client.start_thread()
            await settled(client, "x")
            assert (await client.turn(thread_id, "go"))["status"] == "completed"
