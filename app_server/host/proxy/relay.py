"""Bytes between two connections, until both directions have ended or nothing moves any more.

Source: docs/tools.md, "Network through a proxy".
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from app_server.host.proxy.upstream import ProxyBounds, Streams


@asynccontextmanager
async def until_idle(limit_s: float) -> AsyncIterator[Callable[[], None]]:
    """Give what other tasks call when something moved; it must not be called after the context.

    Raises:
        TimeoutError: nothing has moved for `limit_s` seconds.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(limit_s) as idle:

        def moved() -> None:
            # What moves while this task is being cancelled comes too late.
            if not idle.expired():
                idle.reschedule(loop.time() + limit_s)

        yield moved


async def relay(one: Streams, other: Streams, bounds: ProxyBounds) -> None:
    """Copy in both directions; the end of one direction is passed on, and the other goes on.

    Returns when both have ended, one is broken, or nothing came for `idle_s`. What is not taken is
    not read: a slow side slows the other down.
    """
    try:
        async with until_idle(bounds.idle_s) as moved, asyncio.TaskGroup() as tasks:
            for (reader, _), (_, writer) in ((one, other), (other, one)):
                tasks.create_task(_copy(reader, writer, bounds.piece_bytes, moved))
    except* TimeoutError:
        # What still waits is not taken either.
        for _, writer in (one, other):
            _drop(writer)
    except* OSError:
        # It is broken, and so over.
        pass


@asynccontextmanager
async def closing(writer: asyncio.StreamWriter, bounds: ProxyBounds) -> AsyncIterator[None]:
    """Close a connection at the end, once what was written is taken, or not for `idle_s`.

    Whoever is cancelled waits for nobody: the command has gone, and nothing of it stays behind.
    """
    try:
        yield
    except asyncio.CancelledError:
        _drop(writer)
        raise
    finally:
        await _close(writer, bounds.idle_s)


async def _close(writer: asyncio.StreamWriter, limit_s: float) -> None:
    writer.close()
    try:
        async with asyncio.timeout(limit_s):
            await writer.wait_closed()
    except OSError:
        # Broken, or not taken in time.
        _drop(writer)
    except asyncio.CancelledError:
        _drop(writer)
        raise


def _drop(writer: asyncio.StreamWriter) -> None:
    """End a connection without sending what waits; Python 3.11 fails on one that has ended."""
    transport = writer.transport
    if not transport.is_closing() or transport.get_write_buffer_size():
        transport.abort()


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
