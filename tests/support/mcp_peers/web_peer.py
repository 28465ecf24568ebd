"""A hand-written MCP server over HTTP for tests: forgets sessions, refuses, stalls, breaks off.

Speaks just enough HTTP/1.1: a request, an answer, and the connection stays. Its one tool `look`
answers with the number of the call.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.changes import Changes
from tests.support.http_peer import HttpRequest, answering


@dataclass(frozen=True)
class Answer:
    """An HTTP response as it is sent.

    `cut` ends the connection in the middle of the body, `stays_open` leaves that to the client.
    """

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False
    stays_open: bool = False
    after: asyncio.Event | None = None
    """It is sent once this is set."""


JSON = {"content-type": "application/json"}
EVENTS = {"content-type": "text/event-stream"}

LISTENING = Answer()
"""The stream of a session, which stays open."""


@dataclass
class WebPeer:
    """One server: what it is to do, and what it was asked."""

    version: str = "2025-06-18"
    url: str = ""
    known: set[str] = field(default_factory=set)
    """Sessions; requests in others get 404 with `lost` as their body."""
    lost: Answer = field(default_factory=lambda: Answer(404, b"no such session"))
    answers: dict[str, list[Answer | None]] = field(default_factory=dict)
    """MCP method to what is answered before it is served again; None answers never."""
    probes: int = 0
    """Times that it was asked for its revisions. It knows of none but that of its handshake."""
    seen: list[tuple[str, str | None]] = field(default_factory=list)
    """MCP method (`answer` for answers to us) or HTTP method, and the session; no probe.

    A GET that takes a stream up again is `GET after EVENT`.
    """
    headers: list[dict[str, str]] = field(default_factory=list)
    """Of every request, names in lower case."""
    changes: Changes = field(default_factory=Changes)
    """Noted with each request."""
    paths: list[str] = field(default_factory=list)
    """Of every request."""
    listening: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by every GET."""
    unheard: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the client has left the stream of a GET."""
    events: bytes = b""
    """What every GET is sent first."""
    hung_up: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the client has left an answer that does not come, or does not end."""
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by every answer to us."""
    in_events: bool = False
    """Whether results are sent as streams of one event, in chunks, instead of as JSON."""
    tools: list[dict[str, Any]] = field(
        default_factory=lambda: [{"name": "look", "inputSchema": {"type": "object"}}]
    )
    resources: dict[str, str] | None = None
    """URI to text; without any the server does not have the capability."""
    title: str | None = None
    experimental: dict[str, Any] = field(default_factory=dict)
    result: dict[str, Any] = field(default_factory=dict)
    """Goes into the result of every call, over what it has."""
    called: list[Any] = field(default_factory=list)
    """Params of every call that was served."""
    hold: asyncio.Event | None = None
    """Calls are served once this is set."""
    holding: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by every call that has come."""
    calls: int = 0
    sessions: int = 0

    @asynccontextmanager
    async def serve(self) -> AsyncIterator["WebPeer"]:
        """Listen while the context lasts."""
        async with answering(self._serve_one) as port:
            self.url = f"http://127.0.0.1:{port}/mcp"
            yield self

    def methods(self) -> list[str]:
        """Return what was asked, in order."""
        return [method for method, _ in self.seen]

    async def _serve_one(
        self, request: HttpRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        headers = request.headers
        if request.body:
            message = {"method": "answer", **json.loads(request.body)}
        else:
            event = headers.get("last-event-id")
            message = {"method": request.method + (f" after {event}" if event else "")}
        session = headers.get("mcp-session-id")
        if message["method"] == "server/discover":
            self.probes += 1
            writer.write(b"HTTP/1.1 400 Scripted\r\ncontent-length: 0\r\n\r\n")
            return True
        self.seen.append((message["method"], session))
        self.changes.note()
        if message["method"] == "answer":
            self.answered.set()
        self.headers.append(headers)
        self.paths.append(request.target)
        if message["method"] == "tools/call":
            self.holding.set()
            if self.hold is not None:
                await self.hold.wait()
        answer = self._answer(message, session)
        if answer is None:
            await reader.read()
            self.hung_up.set()
            return False
        if answer.after is not None:
            await answer.after.wait()
        if message["method"] == "GET" and answer is LISTENING:
            self.listening.set()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
            writer.write(self.events)
            await writer.drain()
            await reader.read()
            self.unheard.set()
            return False
        if answer.stays_open:
            head = "".join(f"{name}: {value}\r\n" for name, value in answer.headers.items())
            writer.write(f"HTTP/1.1 {answer.status} Scripted\r\n{head}\r\n".encode() + answer.body)
            await reader.read()
            self.hung_up.set()
            return False
        if self.in_events and answer.headers.get("content-type") == JSON["content-type"]:
            writer.write(_in_events(answer))
            return True
        length = len(answer.body) + (100 if answer.cut else 0)
        head = "".join(f"{name}: {value}\r\n" for name, value in answer.headers.items())
        status = f"HTTP/1.1 {answer.status} Scripted\r\n{head}content-length: {length}\r\n\r\n"
        writer.write(status.encode() + answer.body)
        return not answer.cut

    def _answer(self, message: Any, session: str | None) -> Answer | None:
        method = message["method"]
        if waiting := self.answers.get(method):
            return waiting.pop(0)
        if method == "initialize":
            self.sessions += 1
            session = f"session-{self.sessions}"
            self.known.add(session)
            hello: dict[str, Any] = {
                "protocolVersion": self.version,
                "capabilities": {"tools": {}, "experimental": self.experimental},
                "serverInfo": {"name": "web", "version": "1", "title": self.title},
            }
            if self.resources is not None:
                hello["capabilities"]["resources"] = {}
            return _result(message, hello, {"mcp-session-id": session})
        if session not in self.known:
            return self.lost
        if method == "tools/list":
            return _result(message, {"tools": self.tools})
        if method == "resources/list" and self.resources is not None:
            found = [{"uri": uri, "name": uri} for uri in self.resources]
            return _result(message, {"resources": found})
        if method == "resources/read" and self.resources is not None:
            uri = message["params"]["uri"]
            return _result(message, {"contents": [{"uri": uri, "text": self.resources[uri]}]})
        if method == "tools/call":
            self.calls += 1
            self.called.append(message["params"])
            content = [{"type": "text", "text": f"call {self.calls}"}]
            return _result(message, {"content": content, **self.result})
        if "id" in message and method != "answer":
            error = {"code": -32601, "message": f"no {method}"}
            body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode()
            return Answer(200, body, JSON)
        if method == "GET":
            return LISTENING
        return Answer(200 if method == "DELETE" else 202)


def _in_events(answer: Answer) -> bytes:
    headers = {**answer.headers, "content-type": "text/event-stream"}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    event = b"event: message\r\ndata: " + answer.body + b"\r\n\r\n"
    status = f"HTTP/1.1 {answer.status} Scripted\r\n{head}transfer-encoding: chunked\r\n\r\n"
    return status.encode() + f"{len(event):x}\r\n".encode() + event + b"\r\n0\r\n\r\n"


def _result(message: Any, result: Any, headers: Mapping[str, str] | None = None) -> Answer:
    body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
    return Answer(200, body, {**JSON, **(headers or {})})
