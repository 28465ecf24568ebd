"""An application on a loopback port: how it is served, and how that ends."""

import asyncio
import signal
import socket
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Any

import anyio
import anyio.to_thread
import httpx2
import pytest
from starlette.requests import Request

from app_server.runtime.http import loopback_server as loopback
from app_server.runtime.http.callback_port import MAX_VISITORS, LoopbackListener, Page, Visit
from app_server.runtime.http.listening import HOST
from app_server.runtime.http.loopback_server import serve_on_loopback
from tests.support.harness import WAIT_S
from tests.support.http_peer import NO_CERTIFICATES
from tests.support.other_user import done_as, other_user


async def hello(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


async def ask(port: int) -> tuple[int, bytes]:
    async with httpx2.AsyncClient(
        verify=NO_CERTIFICATES, timeout=WAIT_S, trust_env=False
    ) as client:
        answer = await client.get(f"http://{HOST}:{port}/")
    return answer.status_code, answer.content


async def test_a_port_is_open_as_long_as_the_context_lasts() -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    async with serve_on_loopback(hello) as port, serve_on_loopback(hello) as other:
        assert port != other
        assert [await ask(port), await ask(other)] == [(200, b"hello")] * 2
        now = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        assert now == handlers
    with pytest.raises(httpx2.ConnectError):
        await ask(port)


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_request_that_does_not_end_is_cut_off(
    is_cancelled: bool,
) -> None:
    reached, cut_off = asyncio.Event(), asyncio.Event()

    async def hangs(scope: Any, receive: Any, send: Any) -> None:
        reached.set()
        try:
            await asyncio.Event().wait()
        finally:
            cut_off.set()

    async def meet_the_end(port: int) -> None:
        assert await ask(port) == (500, b"Internal Server Error")

    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as clients:
            with anyio.CancelScope() as scope:
                async with serve_on_loopback(hangs, shutdown_s=0) as port:
                    clients.start_soon(meet_the_end, port)
                    await reached.wait()
                    if is_cancelled:
                        scope.cancel()
                        await anyio.sleep_forever()
        assert cut_off.is_set()
    with pytest.raises(httpx2.ConnectError):
        await ask(port)


async def test_a_client_that_leaves_within_its_request_is_no_error_of_the_server(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reached, left = asyncio.Event(), asyncio.Event()

    async def reads(scope: Any, receive: Any, send: Any) -> None:
        reached.set()
        try:
            await Request(scope, receive).body()
        finally:
            left.set()

    async with serve_on_loopback(reads) as port:
        _, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n12345")
        with anyio.fail_after(WAIT_S):
            # Who has gone before it was asked who it is is nobody's client.
            await reached.wait()
            writer.close()
            await left.wait()
    assert caplog.messages == []


def idle(port: int, count: int) -> bytes:
    """Open connections, send no request, and wait until all of them were closed."""
    clients = [socket.socket() for _ in range(count)]
    for client in clients:
        client.settimeout(WAIT_S)
        client.connect((HOST, port))
    for client in clients:
        with suppress(ConnectionError):
            assert client.recv(4096) == b""
    return b"closed"


async def show(visit: Visit) -> Page:
    return Page(HTTPStatus.OK, visit.path)


@pytest.mark.parametrize("kind", ["loopback", "callback"])
async def test_a_stranger_keeps_no_connection_open(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    uid = other_user(monkeypatch)
    monkeypatch.setattr(loopback, "MAX_OPEN_TO_STRANGERS", MAX_VISITORS)
    with anyio.fail_after(WAIT_S):
        async with serve_on_loopback(hello) as port, anyio.create_task_group() as tasks:
            callbacks = await LoopbackListener.open(0)
            tasks.start_soon(callbacks.serve, show)
            if kind == "callback":
                port = callbacks.port
            ends = await anyio.to_thread.run_sync(
                done_as, uid, partial(idle, port, 2 * MAX_VISITORS)
            )
            tasks.cancel_scope.cancel()
        await callbacks.aclose()
    assert ends == "closed"


@pytest.mark.parametrize("passes", range(6))
async def test_a_connection_that_comes_with_the_end_is_closed(passes: int) -> None:
    loop = asyncio.get_running_loop()
    async with serve_on_loopback(hello) as port:
        # It waits at the port, and is accepted while the port is being closed.
        peer = socket.create_connection((HOST, port))
        peer.setblocking(False)
        for _ in range(passes):
            await asyncio.sleep(0)
    with peer, anyio.fail_after(WAIT_S), suppress(ConnectionResetError):
        assert await loop.sock_recv(peer, 1) == b""
