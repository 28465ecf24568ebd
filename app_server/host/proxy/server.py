"""The proxy of one command: connections come in on its listener, and leave from this process.

Source: docs/tools.md, "Network through a proxy".
"""

import asyncio
import errno
import logging
import os
import socket
import struct
from functools import partial

import anyio

from app_server.host.proxy.gate import Gate
from app_server.host.proxy.http import serve_http
from app_server.host.proxy.socks import VERSION, serve_socks
from app_server.host.proxy.upstream import BOUNDS, ProxyBounds, Streams, closing
from app_server.runtime.open_files import limit

logger = logging.getLogger(__name__)

SHORTAGE_S = 1.0
"""Before another try while no descriptor is left."""

DESCRIPTOR = struct.Struct("i")
RIGHTS_BYTES = socket.CMSG_LEN(DESCRIPTOR.size)
"""One descriptor, as it comes beside a byte (SCM_RIGHTS, unix(7))."""


class ProxyServer:
    """Waits for the listener of a command that was just started, and serves it until `aclose`."""

    def __init__(self, gate: Gate, network: socket.socket, bounds: ProxyBounds = BOUNDS) -> None:
        """`network` is where the listener arrives; it stays the caller's."""
        self._gate = gate
        self._bounds = bounds
        self._connections: set[asyncio.Task[None]] = set()
        self._accepting = asyncio.get_running_loop().create_task(self._accept_all(network))

    async def aclose(self) -> None:
        """End all connections, and questions that were asked about them.

        To be called when nothing of the command is left.
        """
        # From then on no connection is added.
        self._accepting.cancel()
        await asyncio.wait([self._accepting])
        for task in self._connections:
            task.cancel()
        if self._connections:
            await asyncio.wait(self._connections)

    async def _accept_all(self, network: socket.socket) -> None:
        try:
            listener = await _listener(network)
        except OSError:
            logger.exception("the proxy of a command is not served")
            return
        # Without one the sandbox was ended by what should have made it.
        if listener is not None:
            with listener:
                listener.setblocking(False)
                await self._accept(listener)

    async def _accept(self, listener: socket.socket) -> None:
        shortage = _Shortage("connections of a command to its proxy wait")
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


async def _listener(network: socket.socket) -> socket.socket | None:
    shortage = _Shortage("the proxy of a command waits")
    while True:
        await anyio.wait_readable(network)
        # A look at first: where no descriptor is left, what is taken is gone.
        # (`socket.recv_fds` passes no flags on in Python 3.11.)
        content, received, _, _ = network.recvmsg(
            1, RIGHTS_BYTES, socket.MSG_PEEK | socket.MSG_CMSG_CLOEXEC
        )
        if received:
            network.recv(1)
            return socket.socket(fileno=DESCRIPTOR.unpack(received[0][2])[0])
        if not content:
            return None
        await shortage.pause(os.strerror(errno.EMFILE))


class _Shortage:
    """Shortage of descriptors: accepting is tried again, and logged once."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._is_logged = False

    async def pause(self, why: str) -> None:
        """Wait for the next try; the first one is logged."""
        if not self._is_logged:
            self._is_logged = True
            logger.warning(
                "%s: %s; this process may have %s files and sockets open (ulimit -n)",
                self._what,
                why,
                limit() or "any number of",
            )
        await anyio.sleep(SHORTAGE_S)
