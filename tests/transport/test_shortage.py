"""transport: connections wait while no descriptor is left, and are served then."""

import asyncio
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from app_server.runtime.http.loopback_server import serve_on_loopback
from app_server.transport.address import TcpAddress, UnixAddress
from app_server.transport.websocket import WebSocketLimits, listen_tcp, listen_unix
from tests.support.files.descriptors import no_descriptor_left
from tests.support.harness import WAIT_S

TRIED = "socket.accept() out of system resource"


async def answer_at(client: socket.socket, port: int) -> bytes:
    """Ask for the health of a server; returns the first line of the answer."""
    loop = asyncio.get_running_loop()
    request = f"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n"
    with anyio.fail_after(WAIT_S):
        await loop.sock_sendall(client, request.encode())
        return (await loop.sock_recv(client, 4096)).split(b"\r\n")[0]


@pytest.mark.parametrize("kind", ["websocket", "loopback"])
async def test_a_connection_that_no_descriptor_is_left_for_waits(
    kind: str,
) -> None:
    tries: list[str] = []
    failed = anyio.Event()

    def count(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        tries.append(context["message"])
        failed.set()

    async with (
        listen_tcp(TcpAddress("127.0.0.1", 0), _nobody, WebSocketLimits()) as listener,
        serve_on_loopback(_hello) as loopback,
    ):
        port = loopback if kind == "loopback" else int(listener.url.rpartition(":")[2])
        asyncio.get_running_loop().set_exception_handler(count)
        clients = [socket.socket() for _ in range(20)]
        with no_descriptor_left() as free:
            for client in clients:
                client.setblocking(False)
                client.connect_ex(("127.0.0.1", port))
            with anyio.fail_after(WAIT_S):
                await failed.wait()
            await anyio.lowlevel.checkpoint()
            # One try, and one plan to try again, however many wait.
            assert tries == [TRIED]
            free()
        answers = [await answer_at(client, port) for client in clients]
        for client in clients:
            client.close()
    assert answers == [b"HTTP/1.1 200 OK"] * 20


async def test_many_connections_wait_until_they_are_accepted(tmp_path: Path) -> None:
    limits, count = WebSocketLimits(), 100
    async with (
        listen_tcp(TcpAddress("127.0.0.1", 0), _nobody, limits) as tcp,
        listen_unix(UnixAddress(tmp_path / "s"), _nobody, limits),
    ):
        port = int(tcp.url.rpartition(":")[2])
        for family, address in (
            (socket.AF_INET, ("127.0.0.1", port)),
            (socket.AF_UNIX, str(tmp_path / "s")),
        ):
            with ExitStack() as held:
                clients = [held.enter_context(socket.socket(family)) for _ in range(count)]
                # Nobody is accepted meanwhile: the event loop does not run.
                for client in clients:
                    client.settimeout(WAIT_S)
                    client.connect(address)
                    client.setblocking(False)
                answers = [await answer_at(client, port) for client in clients]
                assert answers == [b"HTTP/1.1 200 OK"] * count


async def _nobody(stream: object) -> None:
    raise AssertionError


async def _hello(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})
