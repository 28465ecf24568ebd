"""The proxy of one command: connections come in on its listener, and leave from this process.

Source: docs/tools.md, "Network through a proxy".
"""

import asyncio
import logging
import socket
from functools import partial

import anyio

from app_server.host.proxy.bounds import BOUNDS, ProxyBounds
from app_server.host.proxy.gate import Gate
from app_server.host.proxy.http import serve_http
from app_server.host.proxy.relay import closing
from app_server.host.proxy.shortage import Shortage
from app_server.host.proxy.socks import VERSION, serve_socks
from app_server.host.proxy.upstream import Streams

logger = logging.getLogger(__name__)


class ProxyServer:
    """Serves one listener, from `open` to `aclose`."""

    def __init__(self, gate: Gate, bounds: ProxyBounds = BOUNDS) -> None:
        self._gate = gate
        self._bounds = bounds
        self._listener: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._connections: set[asyncio.Task[None]] = set()

    def open(self, listener: socket.socket) -> None:
        """Serve what comes in on a listener, which belongs to this from now on."""
        listener.setblocking(False)
        self._listener = listener
        self._accepting = asyncio.get_running_loop().create_task(self._accept_all(listener))

    async def aclose(self) -> None:
        """End all connections, and questions that were asked about them."""
        if self._accepting is not None and self._listener is not None:
            # From then on no connection is added.
            self._accepting.cancel()
            await asyncio.wait([self._accepting])
            self._listener.close()
        for task in self._connections:
            task.cancel()
        if self._connections:
            await asyncio.wait(self._connections)

    async def _accept_all(self, listener: socket.socket) -> None:
        shortage = Shortage("connections of a command to its proxy wait")
        while True:
            await anyio.wait_readable(listener)
            try:
                connection, _ = listener.accept()
            except BlockingIOError:
                continue
            except OSError as exc:
                # They stay in the backlog.
                await shortage.pause(exc.strerror or str(exc))
                continue
            if len(self._connections) >= self._bounds.connections:
                connection.close()
            else:
                await self._begin(connection)

    async def _begin(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        try:
            streams = await asyncio.open_connection(sock=connection, limit=self._bounds.piece_bytes)
        except OSError:
            # Broken already.
            connection.close()
            return
        except BaseException:
            connection.close()
            raise
        task = asyncio.get_running_loop().create_task(self._serve(streams))
        self._connections.add(task)
        task.add_done_callback(partial(self._ended, streams[1]))

    def _ended(self, writer: asyncio.StreamWriter, task: asyncio.Task[None]) -> None:
        self._connections.discard(task)
        # One that was cancelled before its first step has closed nothing.
        writer.transport.abort()

    async def _serve(self, streams: Streams) -> None:
        (reader, writer), bounds = streams, self._bounds
        try:
            async with closing(writer, bounds):
                async with asyncio.timeout(bounds.head_s):
                    first = await reader.read(1)
                if first == bytes((VERSION,)):
                    await serve_socks(streams, self._gate, bounds)
                elif first:
                    await serve_http(streams, first, self._gate, bounds)
        except OSError:
            # Broken, or silent for too long.
            pass
        except Exception:
            logger.exception("a connection through the proxy of a command failed")
