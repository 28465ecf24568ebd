"""`app-server mcp-server` under test: in this process over a pipe, or the executable on its stdio.

What clients see is the same either way. The executable takes a second of processor time to start.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import StdioServerParameters
from mcp.client import Transport
from mcp.client.stdio import stdio_client
from mcp.shared.dispatcher import DispatchContext
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import SessionMessage

from app_server import VERSION
from app_server.clients.mcp_front.conversation import FrontLimits
from app_server.clients.mcp_front.process import offer
from app_server.extensions.contract.registry import ExtensionRegistry
from app_server.rpc.in_process import PipeEnd, open_pipe
from app_server.server.app import AppServer
from app_server.server.settings import Settings
from tests.support.harness import REQUIREMENTS, WAIT_S, environment_without

EXECUTABLE = Path(sys.executable).parent / "app-server"
INFO = {"name": "test", "version": "1"}

Received: TypeAlias = SessionMessage | Exception
Streams: TypeAlias = tuple[
    MemoryObjectReceiveStream[Received], MemoryObjectSendStream[SessionMessage]
]


@dataclass
class Front:
    """The SDK's dispatcher, without its types, and what was heard and asked."""

    dispatcher: JSONRPCDispatcher
    answer_with: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]] | None = None
    events: list[dict[str, Any]] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    heard: asyncio.Event = field(default_factory=asyncio.Event)

    async def request(self, method: str, params: Any = None) -> Any:
        """Call a method; MCPError when it is refused."""
        with anyio.fail_after(WAIT_S):
            return await self.dispatcher.send_raw_request(method, params)

    async def call(self, name: str, **arguments: Any) -> Any:
        """Call a tool; underscores of arguments stand for hyphens."""
        return await self.request("tools/call", {"name": name, "arguments": arguments})

    async def until(self, kind: str) -> dict[str, Any]:
        """Wait for an event of a kind and return its params."""
        with anyio.fail_after(WAIT_S):
            while True:
                for params in self.events:
                    if params["msg"]["type"] == kind:
                        return params
                self.heard.clear()
                await self.heard.wait()

    async def answer(
        self, context: DispatchContext[Any], method: str, params: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """Answer a question of the server's."""
        assert method == "elicitation/create"
        self.asked.append(dict(params or {}))
        if self.answer_with is None:
            raise MCPError(-32601, "nobody is here to ask")
        return await self.answer_with(self.asked[-1])

    async def on_notification(
        self, context: DispatchContext[Any], method: str, params: Mapping[str, Any] | None
    ) -> None:
        """Keep an event."""
        assert method == "codex/event"
        self.events.append(dict(params or {}))
        self.heard.set()


def front(home: Path, answer: dict[str, Any] | None = None) -> AbstractAsyncContextManager[Front]:
    """Offer a server in this process, and shake hands; `answer` is given to every question."""
    return _shake_hands(pipe(home), answer)


def front_process(
    home: Path, answer: dict[str, Any] | None = None
) -> AbstractAsyncContextManager[Front]:
    """Start the executable, and shake hands; `answer` is given to every question."""
    return _shake_hands(stdio_client(parameters(home)), answer)


def parameters(home: Path) -> StdioServerParameters:
    """Say how the executable is started."""
    return StdioServerParameters(
        command=str(EXECUTABLE),
        args=["mcp-server", "--home", str(home)],
        env=environment_without("CODEX_HOME", "APP_SERVER_HOME", "OPENAI_API_KEY"),
        cwd=home,
    )


@asynccontextmanager
async def _shake_hands(
    connection: Transport, answer: dict[str, Any] | None
) -> AsyncIterator[Front]:
    async def answer_with(params: dict[str, Any]) -> dict[str, Any]:
        assert answer is not None
        return answer

    async with connection as streams, anyio.create_task_group() as tasks:
        dispatcher: JSONRPCDispatcher = JSONRPCDispatcher(*streams)
        client = Front(dispatcher, None if answer is None else answer_with)
        await tasks.start(dispatcher.run, client.answer, client.on_notification)
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": INFO}
        shaken = await client.request("initialize", hello)
        assert shaken["serverInfo"].pop("user_agent").startswith("test/")
        assert shaken == {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "codex-mcp-server", "title": "Codex", "version": VERSION},
        }
        await dispatcher.notify("notifications/initialized", None)
        yield client
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def pipe(home: Path) -> AsyncIterator[Streams]:
    """Offer a server in this process; gives the streams of its client, as a transport of the SDK.

    Nobody has said anything on them yet.
    """
    settings = Settings(
        home=home, requirements=home / REQUIREMENTS, listen=[], cwd=home, user_home=home
    )
    server = AppServer(settings, extensions=ExtensionRegistry())
    ours, theirs = open_pipe()
    incoming, to_read = anyio.create_memory_object_stream[Received]()
    to_write, outgoing = anyio.create_memory_object_stream[SessionMessage]()
    async with to_read, outgoing, anyio.create_task_group() as tasks:
        ready = anyio.Event()
        tasks.start_soon(server.run, lambda urls: ready.set())
        tasks.start_soon(_offer, server, theirs, ready)
        tasks.start_soon(_read, ours, incoming)
        tasks.start_soon(_write, ours, outgoing)
        try:
            yield to_read, to_write
        finally:
            # The client has gone: the server stops by itself.
            await ours.aclose()
            to_write.close()


async def _offer(server: AppServer, stream: PipeEnd, ready: anyio.Event) -> None:
    await ready.wait()
    await offer(server, stream, FrontLimits())


async def _read(
    pipe: PipeEnd, messages: MemoryObjectSendStream[SessionMessage | Exception]
) -> None:
    with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
        while True:
            text = await pipe.receive()
            message = types.jsonrpc_message_adapter.validate_json(text, by_name=False)
            await messages.send(SessionMessage(message))
    messages.close()


async def _write(pipe: PipeEnd, messages: MemoryObjectReceiveStream[SessionMessage]) -> None:
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        async for message in messages:
            await pipe.send(message.message.model_dump_json(by_alias=True, exclude_unset=True))
