"""A model that plays scripts: what it says and calls, where it waits, what it was asked."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio

from app_server.models.prompt.environment_context import kind_of
from tests.support.http_peer import HttpRequest, answering

REACH_S = 60.0
"""For the model to come to a gate."""


@dataclass
class Gate:
    """A place in a response where the model waits until the test lets it on."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    opened: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait_until_reached(self) -> None:
        """Wait until the model stands here."""
        with anyio.fail_after(REACH_S):
            await self.reached.wait()


BREAK = "break"
"""Ends a response in the middle: the connection closes."""

Script = Sequence[Any]
USAGE = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 2},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 1},
    "total_tokens": 15,
}
COMPLETED = {"type": "response.completed", "response": {"id": "resp", "usage": USAGE}}


def says(*deltas: str, item_id: str = "msg_1") -> list[Any]:
    """Script a message."""
    message = {"type": "message", "role": "assistant", "id": item_id}
    content = [{"type": "output_text", "text": "".join(deltas)}]
    return [
        {"type": "response.created", "response": {"id": "resp"}},
        {"type": "response.output_item.added", "item": {**message, "content": []}},
        *(
            {"type": "response.output_text.delta", "item_id": item_id, "delta": delta}
            for delta in deltas
        ),
        {"type": "response.output_item.done", "item": {**message, "content": content}},
        COMPLETED,
    ]


def calls(*functions: dict[str, Any]) -> list[Any]:
    """Script function calls; each has `namespace`, `name` and `arguments` (text or a value)."""
    items = []
    for number, function in enumerate(functions, start=1):
        arguments = function.get("arguments", {})
        item = {
            "type": "function_call",
            "id": f"fc_{number}",
            "call_id": f"call_{number}",
            **function,
            "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments),
        }
        items.append({"type": "response.output_item.done", "item": item})
    return [*items, COMPLETED]


@dataclass(frozen=True)
class Refusal:
    """Script an HTTP error."""

    status: int
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


OF_EVERY_TURN = frozenset(
    {
        "apply_patch",
        "create_goal",
        "exec_command",
        "request_permissions",
        "request_user_input",
        "update_plan",
        "view_image",
        "write_stdin",
    }
)
"""Names of the tools that every turn has, whatever its thread."""


def tools_of_thread(request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what a request offers the model beside the tools of every turn."""
    return [tool for tool in request["tools"] if tool.get("name") not in OF_EVERY_TURN]


class ScriptedModel:
    """A Responses API on loopback that plays scripts and records requests."""

    def __init__(self) -> None:
        self.scripts: list[Script | Refusal] = []
        """Played in order, one a request; then every request gets "ok"."""
        self.choose: Callable[[dict[str, Any]], Script] | None = None
        """Chooses a script by the body of the request, where the order is not known."""
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.connections: set[object] = set()
        """Addresses that requests came from."""
        self.url = ""
        self.response_headers: dict[str, str] = {}
        """Sent with every stream."""
        self.models: Any = None
        """Answers `GET /models`; None: there is no list."""
        self.lists = 0
        """How often it was asked for."""
        self.list_headers: dict[str, str] = {}

    def inputs(self, request: int = -1) -> list[tuple[str, str]]:
        """Return role and text of the messages in a request's input, without its environment."""
        return [
            (item["role"], item["content"][-1]["text"])
            for item in self.items(request)
            if item["type"] == "message"
        ]

    def items(self, request: int = -1) -> list[dict[str, Any]]:
        """Return a request's input, without what the model was told of its environment."""
        return [item for item in self.requests[request]["input"] if kind_of(item) is None]

    @asynccontextmanager
    async def serve(self) -> AsyncIterator["ScriptedModel"]:
        """Listen while the context lasts."""
        async with answering(self._answer) as port:
            self.url = f"http://127.0.0.1:{port}/v1"
            yield self

    async def _answer(
        self, request: HttpRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        headers = {name: value.lower() for name, value in request.headers.items()}
        if request.method == "GET":
            self.lists += 1
            self.list_headers = headers
            content = json.dumps(self.models).encode()
            status = b"404 Not Found" if self.models is None else b"200 OK"
            writer.write(
                b"HTTP/1.1 %b\r\ncontent-length: %d\r\n\r\n%b" % (status, len(content), content)
            )
            return True
        self.requests.append(json.loads(request.body))
        self.headers.append(headers)
        self.paths.append(request.target)
        self.connections.add(writer.get_extra_info("peername"))
        if self.choose is not None:
            script: Script | Refusal = self.choose(self.requests[-1])
        else:
            script = self.scripts.pop(0) if self.scripts else says("ok")
        if isinstance(script, Refusal):
            content = (
                script.body if isinstance(script.body, bytes) else json.dumps(script.body).encode()
            )
            extra = "".join(f"{name}: {value}\r\n" for name, value in script.headers.items())
            writer.write(
                f"HTTP/1.1 {script.status} Scripted\r\ncontent-type: application/json\r\n{extra}"
                f"content-length: {len(content)}\r\n\r\n".encode()
                + content
            )
            return True
        more = "".join(f"{name}: {value}\r\n" for name, value in self.response_headers.items())
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
            b"%btransfer-encoding: chunked\r\n\r\n" % more.encode()
        )
        for event in script:
            if event is BREAK:
                return False
            if isinstance(event, Gate):
                await writer.drain()
                event.reached.set()
                await event.opened.wait()
            else:
                chunk = event if isinstance(event, bytes) else _render_event(event)
                writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        writer.write(b"0\r\n\r\n")
        return True


def _render_event(event: dict[str, Any]) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
