"""What tests share: a server in this process, a client with a transcript, a scripted model.

Every wait has a deadline; a failing test prints what was said on every connection
(`tests/support/pytest_plugins/transcripts.py`). A message of the server's that does not fit its
wire type fails the test.
"""

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import anyio
import pytest
from websockets.asyncio.client import ClientConnection, connect, unix_connect
from websockets.exceptions import ConnectionClosed

# Imported here so that no test waits for them, or has its event loop slowed by them.
from app_server.config.editing.file import ConfigFile
from app_server.extension.registry import ExtensionRegistry
from app_server.handlers.apps.port import AppsPort
from app_server.handlers.services import Services
from app_server.server.app import AppServer
from app_server.server.settings import Settings
from app_server.transport.address import Address, TcpAddress
from app_server.turns.approval.persistent import PersistentApprovals
from app_server.turns.model.prompt.surroundings import kind_of
from tests.support.http_peer import HttpRequest, answering
from tests.support.paths import MCP_PEER
from tests.support.pytest_plugins.transcripts import TRANSCRIPTS
from tests.support.wire.schema_check import MessageCheck

WAIT_S = 60.0
"""The longest that a test waits for what must happen: a busy machine is no failure."""
REQUIREMENTS = "requirements.toml"
"""In the home folder of a server under test, so that no test sees those of the machine."""


Function = TypeVar("Function", bound=Callable[..., Any])

CLAIMS: dict[str, list[str]] = {}
"""Claim id to the tests that prove it; filled by `claim` at import."""


def claim(*ids: str) -> Callable[[Function], Function]:
    """Mark a test as proof of claims in docs/wire.md."""

    def mark(function: Function) -> Function:
        for claim_id in ids:
            CLAIMS.setdefault(claim_id, []).append(function.__qualname__)
        return function

    return mark


# The client.


class Pipe(Protocol):
    """A client's end of a connection."""

    async def receive(self) -> str:
        """Return the next message; EndOfStream when the server has closed."""

    async def send(self, text: str) -> None:
        """Send one message."""

    async def aclose(self) -> None:
        """Leave."""


class SocketPipe:
    """A WebSocket."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    async def receive(self) -> str:
        try:
            return str(await self.socket.recv())
        except ConnectionClosed as exc:
            raise anyio.EndOfStream from exc

    async def send(self, text: str) -> None:
        await self.socket.send(text)

    async def aclose(self) -> None:
        await self.socket.close()


class LinePipe:
    """A pair of byte streams with a message a line."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def receive(self) -> str:
        line = await self._reader.readline()
        if not line:
            raise anyio.EndOfStream
        return line.decode()

    async def send(self, text: str) -> None:
        self._writer.write(text.encode() + b"\n")
        await self._writer.drain()

    async def aclose(self) -> None:
        self._writer.close()


class WireError(Exception):
    """The server answered with an error."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.code: int = error["code"]
        self.message: str = error["message"]
        self.data: Any = error.get("data")


class WireClient:
    """One connection, with everything that was said on it."""

    def __init__(self, pipe: Pipe) -> None:
        self.pipe = pipe
        self._check = MessageCheck()
        self._next_id = 0
        self._kept: list[dict[str, Any]] = []
        self.transcript: list[str] = []
        TRANSCRIPTS.append(self.transcript)

    async def initialize(
        self, name: str = "test", *, experimental: bool = True, **capabilities: Any
    ) -> Any:
        """Shake hands."""
        result = await self.call(
            "initialize",
            {
                "clientInfo": {"name": name, "title": None, "version": "1"},
                "capabilities": {"experimentalApi": experimental, **capabilities},
            },
        )
        await self.send({"method": "initialized"})
        return result

    async def send(self, message: Any) -> None:
        """Send a JSON value, or text as it is."""
        text = message if isinstance(message, str) else json.dumps(message)
        self.transcript.append(f"> {text[:2000]}")
        self._check.sent(text)
        await self.pipe.send(text)

    async def receive(self) -> Any:
        """Return the next message of the server."""
        if self._kept:
            return self._kept.pop(0)
        with anyio.fail_after(WAIT_S):
            text = await self.pipe.receive()
        self.transcript.append(f"< {text[:2000]}")
        message = json.loads(text)
        self._check.received(message)
        return message

    async def request(self, method: str, params: Any = None) -> int:
        """Send a request and return its id."""
        self._next_id += 1
        message = {"id": self._next_id, "method": method}
        await self.send(message if params is None else {**message, "params": params})
        return self._next_id

    async def answer(self, request_id: Any) -> Any:
        """Return the answer to a request; what comes before it is kept for later."""
        kept: list[dict[str, Any]] = []
        while True:
            message = await self.receive()
            if "method" not in message and message.get("id") == request_id:
                self._kept = kept + self._kept
                return message
            kept.append(message)

    async def call(self, method: str, params: Any = None) -> Any:
        """Call a method and return its result, or raise WireError."""
        message = await self.answer(await self.request(method, params))
        if "error" in message:
            raise WireError(message["error"])
        return message["result"]

    async def refusal(self, method: str, params: Any = None) -> WireError:
        """Call a method that must fail and return the error."""
        with pytest.raises(WireError) as caught:
            await self.call(method, params)
        return caught.value

    async def wait_for(
        self, method: str, matches: Callable[[Any], bool] = lambda params: True
    ) -> Any:
        """Return the first notification or request that matches; drop what comes before it."""
        while True:
            message = await self.receive()
            if message.get("method") == method and matches(message["params"]):
                return message

    async def until(self, method: str) -> list[dict[str, Any]]:
        """Return all messages up to and with the first of this method."""
        messages = []
        while True:
            messages.append(await self.receive())
            if messages[-1].get("method") == method:
                return messages

    def take_kept(self) -> list[dict[str, Any]]:
        """Return and drop what came before answers, and what nobody has waited for."""
        kept, self._kept = self._kept, []
        return kept

    async def turn(self, thread_id: str, text: str, **options: Any) -> Any:
        """Run a turn of text and return its `turn/completed`."""
        user_input = [{"type": "text", "text": text}]
        await self.call("turn/start", {"threadId": thread_id, "input": user_input, **options})
        message = await self.wait_for("turn/completed", lambda p: p["threadId"] == thread_id)
        return message["params"]["turn"]

    async def start_thread(self, **params: Any) -> str:
        """Start a thread, wait until it was announced, and return its id."""
        result = await self.call("thread/start", params)
        thread_id: str = result["thread"]["id"]
        await self.wait_for("thread/started", lambda p: p["thread"]["id"] == thread_id)
        return thread_id


def methods_of(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the methods of messages; answers count as `answer`."""
    return [str(message.get("method", "answer")) for message in messages]


# The model.


@dataclass
class Gate:
    """A place in a response where the model waits until the test lets it on."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    opened: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait_until_reached(self) -> None:
        """Wait until the model stands here."""
        with anyio.fail_after(WAIT_S):
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
        self.url = ""
        self.response_headers: dict[str, str] = {}
        """Sent with every stream."""
        self.models: Any = None
        """Answers `GET /models`; None: there is no list."""
        self.lists = 0
        """How often it was asked for."""
        self.list_headers: dict[str, str] = {}

    def inputs(self, request: int = -1) -> list[tuple[str, str]]:
        """Return role and text of the messages in a request's input, without its surroundings."""
        return [
            (item["role"], item["content"][-1]["text"])
            for item in self.items(request)
            if item["type"] == "message"
        ]

    def items(self, request: int = -1) -> list[dict[str, Any]]:
        """Return a request's input, without what the model was told of its surroundings."""
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


# The server.


@dataclass
class Served:
    """A server in this process."""

    app: AppServer
    urls: Sequence[str]
    model: ScriptedModel
    home: Path

    @property
    def services(self) -> Services:
        """What its handlers work with."""
        assert self.app.services is not None, "it runs"
        return self.app.services

    @asynccontextmanager
    async def pipe(self, url: str | None = None, **more: Any) -> AsyncIterator[SocketPipe]:
        """Connect without a handshake; `more` is for the WebSocket."""
        target = url or self.urls[0]
        options: dict[str, Any] = {
            "compression": None,
            "max_size": None,
            "open_timeout": WAIT_S,
            "ping_interval": None,
            **more,
        }
        if target.startswith("unix://"):
            connection = unix_connect(target.removeprefix("unix://"), **options)
        else:
            connection = connect(target, proxy=None, **options)
        async with connection as socket:
            yield SocketPipe(socket)

    @asynccontextmanager
    async def client(
        self, *, experimental: bool = True, **capabilities: Any
    ) -> AsyncIterator[WireClient]:
        """Connect and shake hands."""
        async with self.pipe() as pipe:
            client = WireClient(pipe)
            await client.initialize(experimental=experimental, **capabilities)
            yield client


@asynccontextmanager
async def serve(
    home: Path,
    *,
    config: str = "",
    model: ScriptedModel | None = None,
    listen: Sequence[Address] = (TcpAddress("127.0.0.1", 0),),
    extensions: ExtensionRegistry | None = None,
    with_apps: bool = False,
    apps: AppsPort | None = None,
    **settings: Any,
) -> AsyncIterator[Served]:
    """Run a server on `home` while the context lasts; `config` is added to its config.toml.

    It has no extensions but the given ones; the apps of ChatGPT only `with_apps`.
    """
    async with (model or ScriptedModel()).serve() as scripted:
        write_config(home, scripted.url, config)
        requirements = home / REQUIREMENTS
        options = Settings(
            home=home,
            requirements=requirements,
            listen=listen,
            cwd=home,
            user_home=home,
            **settings,
        )
        if extensions is None and not with_apps:
            extensions = ExtensionRegistry()
        app = AppServer(options, extensions=extensions, apps=apps)
        ready: asyncio.Future[Sequence[str]] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(app.run(ready.set_result))
        try:
            waiting: list[asyncio.Future[Any]] = [task, ready]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
            await app.loaded.wait()
            if app.services is None:
                await task
            yield Served(app, ready.result(), scripted, home)
        finally:
            app.stop()
            app.stop()
            with anyio.CancelScope(shield=True), anyio.fail_after(WAIT_S):
                await task


def approvals_in(home: Path) -> PersistentApprovals:
    """Return where the approvals of a home without extensions are written down."""
    return PersistentApprovals(ConfigFile(home), ExtensionRegistry())


def write_config(home: Path, model_url: str, config: str = "") -> None:
    """Write a config.toml that points at a scripted model."""
    home.mkdir(parents=True, exist_ok=True)
    tables = config.find("\n[")
    plain, rest = (config, "") if tables < 0 else (config[:tables], config[tables:])
    if config.startswith("["):
        plain, rest = "", config
    (home / "config.toml").write_text(
        f'model = "scripted"\nmodel_provider = "scripted"\n{plain}\n'
        f'[model_providers.scripted]\nname = "scripted"\nbase_url = "{model_url}"\n'
        f"request_max_retries = 0\nstream_max_retries = 0\n{rest}\n"
    )


def stdio_server(name: str, *arguments: str, **keys: str) -> str:
    """Write the table of an MCP server: that of MCP_PEER, with the given arguments."""
    lines = [f"[mcp_servers.{name}]", f"command = {json.dumps(sys.executable)}"]
    lines.append(f"args = {json.dumps([str(MCP_PEER), *arguments])}")
    lines.extend(f"{key} = {value}" for key, value in keys.items())
    return "\n".join(lines) + "\n"


def environment_without(*names: str) -> dict[str, str]:
    """Return this process's environment without some variables and without proxies."""
    return {
        key: value
        for key, value in os.environ.items()
        if key not in names and not re.search("proxy", key, re.IGNORECASE)
    }
