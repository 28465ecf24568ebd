"""Bytes between two connections, until both directions have ended or nothing moves any more.

Source: docs/tools.md, "Network through a proxy".
"""

import asyncio
from collections.abc import Callable

from app_server.host.proxy.bounds import ProxyBounds
from app_server.host.proxy.upstream import Streams


async def relay(one: Streams, other: Streams, bounds: ProxyBounds) -> None:
    """Copy in both directions; the end of one direction is passed on, and the other goes on.

    Returns when both have ended, one is broken, or nothing came for `idle_s`. What is not taken is
    not read: a slow side slows the other down.
    """
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(bounds.idle_s) as idle:

            def moved() -> None:
                idle.reschedule(loop.time() + bounds.idle_s)

            async with asyncio.TaskGroup() as tasks:
                for (reader, _), (_, writer) in ((one, other), (other, one)):
                    tasks.create_task(_copy(reader, writer, bounds.piece_bytes, moved))
    except* OSError:
        # Broken, or idle for too long: either way it is over.
        pass


async def _copy(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    piece_bytes: int,
    moved: Callable[[], None],
) -> None:
    while piece := await reader.read(piece_bytes):
        moved()
        writer.write(piece)
        await writer.drain()
    writer.write_eof()
