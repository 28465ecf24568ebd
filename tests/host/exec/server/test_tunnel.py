"""Connections that an exec server makes on its machine."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
import pytest

from app_server.host.exec.client.address import parse_exec_address
from app_server.host.exec.client.client import ExecConnection, open_exec_connection
from app_server.host.exec.client.starts import connection_open
from app_server.host.exec.server.server import ExecServer
from tests.support.harness import WAIT_S
from tests.support.host.exec_peer import exec_here


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[ExecConnection, ExecServer]]:
    async with (
        exec_here() as (url, server),
        open_exec_connection(parse_exec_address(url, None, None, None)) as connection,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(connection.run)
        yield connection, server
        connection.close("over")


@asynccontextmanager
async def echo(limit: int | None = None) -> AsyncIterator[int]:
    """Send back what comes; after `limit` bytes close."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        count = 0
        while (data := await reader.read(65_536)) and (limit is None or count < limit):
            count += len(data)
            writer.write(data)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_bytes_of_any_number_go_both_ways_and_the_end_is_noticed() -> None:
    sent = os.urandom(3 * 1024 * 1024)
    async with connected() as (connection, server), echo(limit=len(sent)) as port:
        async with connection.start(connection_open("127.0.0.1", port)) as there:
            received = bytearray()

            async def take() -> None:
                while data := await there.stdout.read(65_536):
                    received.extend(data)

            with anyio.fail_after(WAIT_S):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(take)
                    there.write(sent)
                    await there.drain()
                    while len(received) < len(sent):
                        await anyio.lowlevel.checkpoint()
                    there.write(b"one more, which ends it")
                await there.ended.wait()
        assert received == sent
        assert there.returncode == 0
        with anyio.fail_after(WAIT_S):
            while server.running:
                await anyio.lowlevel.checkpoint()


async def test_leaving_closes_the_connection() -> None:
    gone = anyio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            await reader.read()
        writer.close()
        gone.set()

    listener = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with listener, connected() as (connection, _):
        port = listener.sockets[0].getsockname()[1]
        async with connection.start(connection_open("127.0.0.1", port)):
            assert not gone.is_set()
        with anyio.fail_after(WAIT_S):
            await gone.wait()


async def test_nobody_there_is_an_error_with_the_number_of_that_machine() -> None:
    async with connected() as (connection, server):
        with pytest.raises(ConnectionRefusedError):
            async with connection.start(connection_open("127.0.0.1", 1)):
                pass
        assert server.running == 0
