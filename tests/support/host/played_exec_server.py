"""An exec server that a test plays, and connections to one."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
from websockets.asyncio.server import ServerConnection, serve

from app_server.host.exec.client.address import ExecAddress, parse_exec_address
from app_server.host.exec.client.client import ExecConnection, open_exec_connection


@asynccontextmanager
async def playing(
    play: Callable[[ServerConnection], Awaitable[None]], **options: Any
) -> AsyncIterator[str]:
    """Be an exec server that is as badly behaved as told."""
    async with serve(play, "127.0.0.1", 0, **options) as server:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def address_of(url: str, connect_ms: int | None = None) -> ExecAddress:
    return parse_exec_address(url, None, None, connect_ms)


async def welcome(socket: ServerConnection, version: int = 1) -> None:
    message = json.loads(await socket.recv())
    assert message["method"] == "initialize"
    result = {"protocolVersion": version}
    await socket.send(json.dumps({"id": message["id"], "result": result}))


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[ExecConnection]:
    async with (
        open_exec_connection(address_of(url)) as connection,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(connection.run)
        yield connection
        connection.close("the test is over")
