"""A proxy over real sockets of this process, and the one server that it reaches."""

import asyncio
import select
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import anyio.lowlevel

from app_server.host.proxy.gate import Refusal, refusal_of
from app_server.host.proxy.server import ProxyServer
from app_server.host.proxy.upstream import ProxyBounds
from app_server.permissions.network import NetworkPolicy, Target, verdict_on
from tests.support.harness import WAIT_S

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Watched:
    """Decides by a policy, and remembers what it was asked."""

    policy: NetworkPolicy
    asked: list[Target] = field(default_factory=list)
    told: list[tuple[Target, Refusal]] = field(default_factory=list)

    async def decide(self, target: Target) -> Refusal | None:
        self.asked.append(target)
        return refusal_of(verdict_on(target, self.policy, ()))

    async def refused(self, target: Target, why: Refusal) -> None:
        self.told.append((target, why))


@dataclass
class Proxy:
    """A proxy that listens on 127.0.0.1."""

    port: int
    gate: Watched
    aclose: Callable[[], Awaitable[None]]
    """What its command's end does; harmless when done again."""

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def exchange(self, sent: bytes) -> bytes:
        """Send something, and return all that comes until the connection is closed."""
        reader, writer = await self.connect()
        writer.write(sent)
        with anyio.fail_after(WAIT_S):
            received = await reader.read()
        writer.close()
        return received


@asynccontextmanager
async def proxy(policy: NetworkPolicy, bounds: ProxyBounds | None = None) -> AsyncIterator[Proxy]:
    gate = Watched(policy)
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    ours, theirs = socket.socketpair()
    with ours, theirs:
        with listener:
            socket.send_fds(theirs, [b"l"], [listener.fileno()])
        server = ProxyServer(gate, ours, bounds or ProxyBounds())
        while select.select([ours], [], [], 0)[0]:
            await anyio.lowlevel.checkpoint()
        try:
            yield Proxy(port, gate, server.aclose)
        finally:
            await server.aclose()


@asynccontextmanager
async def answering(answer: Answer) -> AsyncIterator[int]:
    """Serve connections on 127.0.0.1 with a function; gives the port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answer(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()
