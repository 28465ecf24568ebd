"""The proxy of one command: connections come in on its listener, and leave from this process.

Source: docs/tools.md, "Network through a proxy".
"""

import asyncio
import logging
import socket

from app_server.host.proxy.bounds import BOUNDS, ProxyBounds
from app_server.host.proxy.gate import Gate
from app_server.host.proxy.http import serve_http
from app_server.host.proxy.relay import closing
from app_server.host.proxy.socks import VERSION, serve_socks

logger = logging.getLogger(__name__)


class ProxyServer:
    """Serves one listener, from `open` to `aclose`."""

    def __init__(self, gate: Gate, bounds: ProxyBounds = BOUNDS) -> None:
        self._gate = gate
        self._bounds = bounds
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def open(self, listener: socket.socket) -> None:
        """Serve what comes in on a listener, which belongs to this from now on."""
        listener.setblocking(False)
        self._server = await asyncio.start_server(
            self._accept, sock=listener, limit=self._bounds.piece_bytes
        )

    async def aclose(self) -> None:
        """End all connections, and questions that were asked about them."""
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        if self._connections:
            await asyncio.wait(self._connections)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= self._bounds.connections:
            writer.close()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        streams, bounds = (reader, writer), self._bounds
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
