"""Connections to HTTP servers of other machines, as sockets of this one.

Source: docs/environments.md, "Servers in an environment".
"""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
import anyio.abc

from app_server.mcp.processes import ChildProcess, Processes
from app_server.mcp_wire.http.loopback import Dial

CHUNK_BYTES = 64 * 1024


@asynccontextmanager
async def open_dial(processes: Processes, environment_id: str) -> AsyncIterator[Dial]:
    """Give what connects to servers of an environment; leaving ends the connections.

    What fails in the context comes out as it is, and in no group.
    """
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:

        async def dial(host: str, port: int) -> socket.socket:
            ours: socket.socket = await tasks.start(_hold, processes, environment_id, host, port)
            return ours

        try:
            yield dial
        except Exception as exc:  # noqa: BLE001
            failure = exc
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _hold(
    processes: Processes,
    environment_id: str,
    host: str,
    port: int,
    *,
    task_status: anyio.abc.TaskStatus[socket.socket],
) -> None:
    """Connect, give one end of a pair of sockets, and carry bytes between the other and there.

    Raises:
        OSError: it cannot be connected to; nothing was given then.
    """
    async with processes.open_connection(environment_id, host, port) as there:
        ours, here = socket.socketpair()
        ours.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=here)
        task_status.started(ours)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_carry_there, reader, there, tasks.cancel_scope)
                tasks.start_soon(_carry_back, there, writer, tasks.cancel_scope)
        finally:
            writer.close()


async def _carry_there(
    reader: asyncio.StreamReader, there: ChildProcess, over: anyio.CancelScope
) -> None:
    # Whoever uses the socket sees that it has ended.
    with suppress(OSError):
        while data := await reader.read(CHUNK_BYTES):
            there.write(data)
            await there.drain()
    over.cancel()


async def _carry_back(
    there: ChildProcess, writer: asyncio.StreamWriter, over: anyio.CancelScope
) -> None:
    with suppress(OSError):
        while data := await there.stdout.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
    over.cancel()
