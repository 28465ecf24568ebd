"""One conversation over streams in memory, with work that a test controls."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from app_server.rpc.connection import RpcConnection
from app_server.rpc.context import InitializedClient, RequestContext
from app_server.rpc.hub import Hub
from app_server.rpc.message_stream import ConnectionLimits
from app_server.transport.address import (
    TcpAddress,
)
from protocol.jsonrpc.envelope import Request, render_result
from protocol.server.lifecycle import ClientInfo, InitializeCapabilities
from tests.support.harness import WAIT_S
from tests.support.wire.pipes import LinePipe

LOOPBACK = TcpAddress("127.0.0.1", 0)


class MemoryStream:
    """Both ends of a connection without a socket."""

    def __init__(self, window: int = 1_000_000) -> None:
        self._to_server, self._at_server = anyio.create_memory_object_stream[str](1000)
        self._to_client, self._at_client = anyio.create_memory_object_stream[str](window)
        self.closed_with: tuple[int, str] | None = None

    async def receive(self) -> str:
        return await self._at_server.receive()

    async def send(self, *texts: str) -> None:
        for text in texts:
            await self._to_client.send(text)

    async def aclose(self, code: int = 1000, reason: str = "") -> None:
        if self.closed_with is None:
            self.closed_with = code, reason
        self._to_client.close()
        self._to_server.close()

    def client_send(self, *messages: Any) -> None:
        """Send as the client."""
        for message in messages:
            self._to_server.send_nowait(
                message if isinstance(message, str) else json.dumps(message)
            )

    def finish(self) -> None:
        """End as the client."""
        self._to_server.close()

    async def client_receive(self, count: int = 1) -> list[Any]:
        """Receive as the client."""
        with anyio.fail_after(WAIT_S):
            return [json.loads(await self._at_client.receive()) for _ in range(count)]

    async def client_receive_text(self) -> str:
        """Receive one message as it was sent."""
        with anyio.fail_after(WAIT_S):
            return await self._at_client.receive()

    async def client_receive_all(self) -> list[Any]:
        """Receive as the client until the server has closed."""
        with anyio.fail_after(WAIT_S):
            return [json.loads(text) async for text in self._at_client]

    def drop(self) -> None:
        """Close what is left, so that nothing warns."""
        for stream in (self._to_server, self._at_server, self._to_client, self._at_client):
            stream.close()


class Work:
    """Requests that run until they are told to go on."""

    services: object = None

    def __init__(self) -> None:
        self.started: list[Any] = []
        self._gates: dict[Any, anyio.Event] = {}
        self._changed = anyio.Event()

    def refused(self, failure: str) -> None:
        """Count nothing."""

    def is_immediate(self, method: str) -> bool:
        """Load nothing."""
        return True

    async def dispatch(self, context: RequestContext[Any], request: Request) -> str:
        self.started.append(request.id)
        self._changed.set()
        await self._gates.setdefault(request.id, anyio.Event()).wait()
        return render_result(request.id, {"method": request.method})

    def let(self, *request_ids: Any) -> None:
        """Let requests go on."""
        for request_id in request_ids:
            self._gates.setdefault(request_id, anyio.Event()).set()

    async def until_started(self, *request_ids: Any) -> None:
        """Wait until exactly these have started, in this order."""
        with anyio.fail_after(WAIT_S):
            while self.started != list(request_ids):
                self._changed = anyio.Event()
                await self._changed.wait()


@asynccontextmanager
async def conversation(
    requests: Any, limits: ConnectionLimits | None = None, window: int = 1_000_000
) -> AsyncIterator[tuple[MemoryStream, RpcConnection, Hub]]:
    stream, hub = MemoryStream(window), Hub(lambda: 7)
    connection = RpcConnection(stream, requests, hub, limits or ConnectionLimits())
    task = asyncio.create_task(connection.run())
    await asyncio.sleep(0)
    try:
        yield stream, connection, hub
    finally:
        stream.finish()
        with anyio.fail_after(WAIT_S):
            await task
        stream.drop()


def request(request_id: Any, method: str = "turn/start", thread: str | None = "t") -> Any:
    params = {} if thread is None else {"threadId": thread}
    return {"id": request_id, "method": method, "params": params}


def session(
    *, experimental: bool = True, jsonrpc: bool = False, **kwargs: Any
) -> InitializedClient:
    capabilities = InitializeCapabilities(experimental_api=experimental)
    return InitializedClient(ClientInfo(name="c", version="1"), capabilities, jsonrpc, **kwargs)


@asynccontextmanager
async def stdio_pipes(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LinePipe]:
    """Replace this process's stdio by pipes and give the other ends."""
    server_in, client_out = os.pipe()
    client_in, server_out = os.pipe()
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    reading, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(client_in, "rb")
    )
    writing, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(client_out, "wb")
    )
    monkeypatch.setattr("sys.stdin", os.fdopen(server_in, "r"))
    monkeypatch.setattr("sys.stdout", os.fdopen(server_out, "w"))
    try:
        yield LinePipe(reader, asyncio.StreamWriter(writing, protocol, None, loop))
    finally:
        reading.close()
        writing.close()
