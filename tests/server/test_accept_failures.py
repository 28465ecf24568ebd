"""server: when no descriptor is left, the log says so and is not filled by it."""

import asyncio
import logging
import socket
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest

from app_server.runtime.http.listening import ASKED_BACKLOG
from app_server.server import listeners
from app_server.server.listeners import NOT_ACCEPTED, accept_failures_logged_once
from tests.support.files.descriptors import no_descriptor_left
from tests.support.harness import WAIT_S, serve

RETRY_S = 0.05


async def test_connections_that_cannot_be_accepted_are_a_line_of_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(tmp_path) as served:
        host, port = served.urls[0].removeprefix("ws://").split(":")
        with ExitStack() as held, anyio.fail_after(WAIT_S):
            waiting = [held.enter_context(socket.socket()) for _ in range(3)]
            with no_descriptor_left():
                for client in waiting:
                    client.setblocking(False)
                    await asyncio.get_running_loop().sock_connect(client, (host, int(port)))
                while "no connection can be accepted" not in caplog.text:
                    await asyncio.sleep(0)
                for _ in range(100):
                    await asyncio.sleep(0)
        said = [record for record in caplog.records if "accept" in record.getMessage()]
        assert [record.getMessage() for record in said] == [
            "no connection can be accepted: [Errno 24] Too many open files"
        ]
        assert said[0].exc_info is None
        # It serves again once there are some.
        async with served.client() as latest:
            assert await latest.call("thread/loaded/list", {}) == {"data": [], "nextCursor": None}


async def test_a_listener_that_is_closed_meanwhile_is_not_opened_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("asyncio.constants.ACCEPT_RETRY_DELAY", RETRY_S)
    loop, tried_again = asyncio.get_running_loop(), asyncio.Event()
    with accept_failures_logged_once(), anyio.fail_after(WAIT_S), socket.socket() as client:
        server = await asyncio.start_server(
            lambda reader, writer: None, "127.0.0.1", 0, backlog=ASKED_BACKLOG
        )
        client.setblocking(False)
        with no_descriptor_left():
            await loop.sock_connect(client, server.sockets[0].getsockname())
            while not caplog.records:
                await asyncio.sleep(0)
        server.close()
        # After all that asyncio has planned.
        loop.call_later(RETRY_S, tried_again.set)
        await tried_again.wait()
    assert [record.getMessage() for record in caplog.records] == [
        "no connection can be accepted: [Errno 24] Too many open files"
    ]


async def test_it_is_logged_again_after_a_while_and_all_else_as_before(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    with accept_failures_logged_once():
        for again_s in (10.0, 10.0, 0.0, 0.0):
            monkeypatch.setattr(listeners, "LOGGED_AGAIN_S", again_s)
            loop.call_exception_handler({"message": NOT_ACCEPTED, "exception": OSError("why")})
        loop.call_exception_handler({"message": "something else"})
    assert [record.getMessage() for record in caplog.records] == [
        *["no connection can be accepted: why"] * 3,
        "something else",
    ]
    assert loop.get_exception_handler() is before
