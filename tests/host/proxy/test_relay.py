"""Connections of a proxy whose other side takes nothing: they end with their bound or command."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress

import anyio
import pytest

from app_server.host.proxy.upstream import ProxyBounds, Streams, closing
from app_server.permissions.network import NetworkPolicy, Target
from tests.support.event_loop.clock import LoopClock
from tests.support.harness import WAIT_S
from tests.support.host.proxies import Proxy, answering, proxy

LOCAL = NetworkPolicy(allowed=("127.0.0.1",))

MUCH = bytes(16 * 1024 * 1024)
"""More than the buffers of two sides take."""

FULL_S = 0.1
"""Without a byte: long enough that a buffer is full when it is over."""


@pytest.fixture
def deaf() -> Iterator[int]:
    """Give a port whose connections are made, and read by nobody."""
    listener = socket.create_server(("127.0.0.1", 0))
    yield listener.getsockname()[1]
    listener.close()


class Dialled:
    """The connections that a proxy makes."""

    def __init__(self) -> None:
        self.writers: list[asyncio.StreamWriter] = []
        self.is_full = anyio.Event()
        """Whether one has so much to send that nothing more is read for it."""

    async def connect(self, target: Target, policy: NetworkPolicy, bounds: ProxyBounds) -> Streams:
        reader, writer = await asyncio.open_connection(target.host, target.port)
        protocol = writer.transport.get_protocol()
        assert isinstance(protocol, asyncio.StreamReaderProtocol)
        pause = protocol.pause_writing

        def pause_writing() -> None:
            pause()
            self.is_full.set()

        protocol.pause_writing = pause_writing  # type: ignore[method-assign]
        self.writers.append(writer)
        return reader, writer

    async def wait_until_gone(self) -> None:
        [writer] = self.writers
        with anyio.fail_after(WAIT_S), suppress(OSError):
            await writer.wait_closed()


@pytest.fixture
def dialled(monkeypatch: pytest.MonkeyPatch) -> Dialled:
    dialled = Dialled()
    monkeypatch.setattr("app_server.host.proxy.server.connect", dialled.connect)
    return dialled


@asynccontextmanager
async def full_tunnel(used: Proxy, port: int, dialled: Dialled) -> AsyncIterator[None]:
    _, writer = await used.connect()
    writer.write(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\nHost: x\r\n\r\n" % port + MUCH)
    with anyio.fail_after(WAIT_S):
        await dialled.is_full.wait()
    yield
    writer.transport.abort()


async def test_nothing_of_a_command_stays_connected_to_a_server_that_takes_nothing(
    deaf: int, dialled: Dialled
) -> None:
    async with proxy(LOCAL) as used, full_tunnel(used, deaf, dialled):
        # The proxy ends first, as it does with the command.
        await used.aclose()
        await dialled.wait_until_gone()


async def test_a_server_that_takes_nothing_is_given_up(
    deaf: int, dialled: Dialled, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, bounds = LoopClock(monkeypatch), ProxyBounds(idle_s=10 * WAIT_S)
    async with proxy(LOCAL, bounds) as used, full_tunnel(used, deaf, dialled):
        clock.put_forward(bounds.idle_s)
        await dialled.wait_until_gone()


async def test_what_was_written_is_sent_before_a_connection_is_closed() -> None:
    received = bytearray()
    ended = anyio.Event()

    async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.extend(await reader.read())
        ended.set()

    async with answering(receive) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        async with closing(writer, ProxyBounds(idle_s=WAIT_S)):
            writer.write(MUCH)
        with anyio.fail_after(WAIT_S):
            await ended.wait()
    assert received == MUCH


async def test_what_is_not_taken_in_time_is_dropped(deaf: int) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", deaf)
    with anyio.fail_after(WAIT_S):
        async with closing(writer, ProxyBounds(idle_s=FULL_S)):
            writer.write(MUCH)
    assert writer.transport.get_write_buffer_size() == 0
