"""Connections of a command to its proxy, from the listener: none left over, none lost."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

import anyio
import anyio.lowlevel
import pytest

from app_server.host.proxy.server import ProxyServer
from app_server.permissions.network import NetworkPolicy
from tests.support.files.descriptors import no_descriptor_left
from tests.support.harness import WAIT_S
from tests.support.host.proxies import Watched, proxy

GATE = Watched(NetworkPolicy())
NONSENSE = b"\x00\r\n\r\n"


@contextmanager
def tries(monkeypatch: pytest.MonkeyPatch, count: int) -> Iterator[Callable[[], Awaitable[None]]]:
    """Make pauses short; gives what waits until there were so many."""
    enough, pauses = anyio.Event(), 0

    async def pause(seconds: float) -> None:
        nonlocal pauses
        pauses += 1
        if pauses >= count:
            enough.set()
        await anyio.lowlevel.checkpoint()

    async def wait() -> None:
        with anyio.fail_after(WAIT_S):
            await enough.wait()

    monkeypatch.setattr(anyio, "sleep", pause)
    yield wait


async def answer_at(client: socket.socket) -> bytes:
    """Send nonsense and return the first line of the answer."""
    loop = asyncio.get_running_loop()
    with anyio.fail_after(WAIT_S):
        await loop.sock_sendall(client, NONSENSE)
        return (await loop.sock_recv(client, 4096)).split(b"\r\n")[0]


@pytest.mark.parametrize("steps", range(8))
async def test_nothing_is_left_when_a_command_ends_while_it_connects(steps: int) -> None:
    before = asyncio.all_tasks()
    async with proxy(NetworkPolicy()) as used:
        clients = [socket.create_connection(("127.0.0.1", used.port)) for _ in range(3)]
        for _ in range(steps):
            await anyio.lowlevel.checkpoint()
        await used.aclose()
        assert asyncio.all_tasks() == before
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", used.port))
    for client in clients:
        client.settimeout(WAIT_S)
        # Closed, before it was accepted or after.
        with suppress(ConnectionResetError):
            assert client.recv(1) == b""
        client.close()


async def test_a_command_that_ends_before_its_listener_came_leaves_nothing() -> None:
    before = asyncio.all_tasks()
    ours, theirs = socket.socketpair()
    with ours, theirs, socket.create_server(("127.0.0.1", 0)) as listener:
        served = ProxyServer(GATE, ours)
        await anyio.lowlevel.checkpoint()
        socket.send_fds(theirs, [b"l"], [listener.fileno()])
        await served.aclose()
    assert asyncio.all_tasks() == before


async def test_connections_wait_while_no_descriptor_is_left(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client = socket.socket()
    client.setblocking(False)
    with client, tries(monkeypatch, 3) as several:
        async with proxy(NetworkPolicy()) as used:
            with no_descriptor_left() as free:
                client.connect_ex(("127.0.0.1", used.port))
                await several()
                free()
            assert await answer_at(client) == b"HTTP/1.1 400 Bad Request"
    assert [record.getMessage() for record in caplog.records] == [
        "connections of a command to its proxy wait: Too many open files; this process may have "
        "256 files and sockets open (ulimit -n)"
    ]


async def test_a_listener_that_there_was_no_descriptor_for_is_taken_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ours, theirs = socket.socketpair()
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    with ours, theirs, tries(monkeypatch, 3) as several:
        with listener:
            socket.send_fds(theirs, [b"l"], [listener.fileno()])
        with no_descriptor_left() as free:
            served = ProxyServer(GATE, ours)
            await several()
            free()
        client = socket.create_connection(("127.0.0.1", port))
        client.setblocking(False)
        with client:
            assert await answer_at(client) == b"HTTP/1.1 400 Bad Request"
        await served.aclose()
    assert [record.getMessage() for record in caplog.records] == [
        "the proxy of a command waits: Too many open files; this process may have 256 files and "
        "sockets open (ulimit -n)"
    ]


async def test_a_sandbox_that_ended_early_has_no_proxy() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        theirs.close()
        served = ProxyServer(GATE, ours)
        await anyio.lowlevel.checkpoint()
        await served.aclose()
