"""Whether another node is silent, or what it says is not read."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.typing import Subprotocol

from app_server.peer.node import PING_S, PONG_S, NodeAddress, NodeSocket
from tests.support.event_loop.clock import LoopClock

FRAMES = 2000


@asynccontextmanager
async def opened(*, flooding: bool) -> AsyncIterator[NodeSocket]:
    """Connect to a node that says much and answers pings, or reads nothing."""

    async def converse(connection: ServerConnection) -> None:
        if flooding:
            for number in range(FRAMES):
                await connection.send(f"{number} " + "x" * 1000)
        else:
            connection.transport.pause_reading()
        await connection.wait_closed()

    server = await serve(
        converse,
        "127.0.0.1",
        0,
        subprotocols=[Subprotocol("s")],
        ping_interval=None,
        close_timeout=0.1,
    )
    async with server:
        port = next(iter(server.sockets)).getsockname()[1]
        async with NodeAddress(f"ws://127.0.0.1:{port}", "token", "s").opened() as socket:
            yield socket


async def pass_time(clock: LoopClock) -> None:
    """Let more than a ping and the wait for its answer pass, second by second."""
    for _ in range(int(3 * (PING_S + PONG_S))):
        clock.put_forward(1.0)
        for _ in range(20):
            await asyncio.sleep(0)


async def test_a_node_whose_frames_are_not_read_is_not_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with opened(flooding=True) as socket:
        await pass_time(LoopClock(monkeypatch))
        with anyio.fail_after(60):
            heard = [int((await socket.receive()).split()[0]) for _ in range(FRAMES)]
        assert heard == list(range(FRAMES))


async def test_a_node_that_answers_no_ping_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(flooding=False) as socket:

        async def receive() -> None:
            with pytest.raises(anyio.EndOfStream):
                await socket.receive()

        receiving = asyncio.create_task(receive())
        await asyncio.sleep(0)
        await pass_time(LoopClock(monkeypatch))
        with anyio.fail_after(60):
            await receiving
