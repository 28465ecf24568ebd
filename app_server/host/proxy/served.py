"""The proxy of a command that was just started: it is served once its listener has come.

Source: docs/tools.md, "Network through a proxy".
"""

import asyncio
import errno
import logging
import os
import socket
import struct

import anyio

from app_server.host.proxy.gate import Gate
from app_server.host.proxy.server import ProxyServer
from app_server.host.proxy.shortage import Shortage

logger = logging.getLogger(__name__)

DESCRIPTOR = struct.Struct("i")
RIGHTS_BYTES = socket.CMSG_LEN(DESCRIPTOR.size)
"""One descriptor, as it comes beside a byte (SCM_RIGHTS, unix(7))."""


class ServedProxy:
    """Waits for the listener, and serves it until `aclose`."""

    def __init__(self, gate: Gate, network: socket.socket) -> None:
        """`network` is where the listener arrives; it stays the caller's."""
        self._network = network
        self._server = ProxyServer(gate)
        self._opening = asyncio.get_running_loop().create_task(self._open())

    async def aclose(self) -> None:
        """End all connections; to be called when nothing of the command is left."""
        self._opening.cancel()
        await asyncio.wait([self._opening])
        await self._server.aclose()

    async def _open(self) -> None:
        try:
            listener = await self._listener()
        except OSError:
            logger.exception("the proxy of a command is not served")
            return
        # Without one the sandbox was ended by what should have made it.
        if listener is not None:
            self._server.open(listener)

    async def _listener(self) -> socket.socket | None:
        shortage = Shortage("the proxy of a command waits")
        while True:
            await anyio.wait_readable(self._network)
            # A look at first: where no descriptor is left, what is taken is gone.
            # (`socket.recv_fds` passes no flags on in Python 3.11.)
            content, received, _, _ = self._network.recvmsg(
                1, RIGHTS_BYTES, socket.MSG_PEEK | socket.MSG_CMSG_CLOEXEC
            )
            if received:
                self._network.recv(1)
                return socket.socket(fileno=DESCRIPTOR.unpack(received[0][2])[0])
            if not content:
                return None
            await shortage.pause(os.strerror(errno.EMFILE))
