"""The proxy of a command that was just started: it is served once its listener has come.

Source: docs/tools.md, "Network through a proxy".
"""

import asyncio
import socket

import anyio

from app_server.host.proxy.gate import Gate
from app_server.host.proxy.server import ProxyServer


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
        await anyio.wait_readable(self._network)
        _, received, _, _ = socket.recv_fds(self._network, 1, 1)
        # Without one the sandbox was ended by what should have made it.
        if received:
            await self._server.open(socket.socket(fileno=received[0]))
