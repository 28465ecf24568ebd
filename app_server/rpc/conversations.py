"""The conversations with all clients of a server."""

from typing import TYPE_CHECKING

import anyio

from app_server.rpc.connection import ConnectionLoad, RpcConnection
from app_server.rpc.dispatch import Dispatcher
from app_server.rpc.hub.hub import Hub
from app_server.rpc.limits import ConnectionLimits
from app_server.rpc.message_stream import MessageStream
from app_server.runtime.loader import load

if TYPE_CHECKING:
    from app_server.rpc.older_interface.stream import OlderInterface


def _older_interface() -> "type[OlderInterface]":
    from app_server.rpc.older_interface.stream import OlderInterface

    return OlderInterface


class Conversations:
    """The open JSON-RPC conversations with clients."""

    def __init__(self, hub: Hub, limits: ConnectionLimits) -> None:
        self._hub = hub
        self._limits = limits
        self._connections: set[RpcConnection] = set()
        self._one_ended = anyio.Event()

    def loads(self) -> list[ConnectionLoad]:
        """Return how much waits on each connection."""
        return [connection.load for connection in self._connections]

    async def converse(self, stream: MessageStream, requests: Dispatcher) -> None:
        """Hold the conversation with one client, until it or `finish` ends it."""
        older_interface = await load(_older_interface)
        client = older_interface(stream)
        connection = RpcConnection(client, requests, self._hub, self._limits)
        self._connections.add(connection)
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)
            self._one_ended.set()

    async def finish(self, within_s: float) -> None:
        """Have all answers sent and every conversation ended, as far as that takes `within_s`."""
        for connection in self._connections:
            connection.finish()
        with anyio.move_on_after(within_s):
            while self._connections:
                self._one_ended = anyio.Event()
                await self._one_ended.wait()
