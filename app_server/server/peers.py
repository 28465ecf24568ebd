"""Calls to the other servers of the home, or of the group, one connection each.

Source: docs/signals.md, "Several servers"; docs/scale.md, "Requests for other nodes".
"""

import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from app_server.runtime.loader import LoadFailed, load
from app_server.signals.notifications import PEER_NAME
from app_server.threads.failures import Holder
from app_server.threads.servers import RunningServers
from protocol.jsonrpc.errors import METHOD_NOT_FOUND, RpcError
from protocol.model import JsonObject, WireModel

if TYPE_CHECKING:
    from app_server.peer.connection import Client
    from app_server.server.node import GroupNode

logger = logging.getLogger(__name__)

CALL_S = 5.0
"""For a call to another server, with its connection."""


class HomePeers:
    """The servers that announce themselves in a home; their tokens are read there."""

    def __init__(self, servers: RunningServers) -> None:
        self._servers = servers

    async def call(
        self, thread_id: str, holder: Holder, method: str, params: WireModel
    ) -> JsonObject | None:
        """Call a method of the server that holds a thread; see Peers.call."""
        address = await anyio.to_thread.run_sync(_address_of, self._servers, holder)
        if address is None:
            return None
        url, token_file = address

        async def connected() -> "AbstractAsyncContextManager[Client]":
            connect = await load(_open_client)
            return connect(url, PEER_NAME, token_file=token_file, experimentalApi=True)

        return await _called(connected, holder, method, params)


class GroupPeers:
    """The nodes of a group."""

    def __init__(self, node: "GroupNode") -> None:
        self._node = node

    async def call(
        self, thread_id: str, holder: Holder, method: str, params: WireModel
    ) -> JsonObject | None:
        """Call a method of the node that owns a thread; see Peers.call."""
        owners = self._node.owners
        owner = None if owners is None else await owners.owner(thread_id)
        if owner is None or owner.node_id == self._node.id:
            return None

        async def connected() -> "AbstractAsyncContextManager[Client]":
            return self._node.address_of(owner).client(PEER_NAME, experimentalApi=True)

        return await _called(connected, holder, method, params)


async def _called(
    connected: "Callable[[], Awaitable[AbstractAsyncContextManager[Client]]]",
    holder: Holder,
    method: str,
    params: WireModel,
) -> JsonObject | None:
    try:
        with anyio.fail_after(CALL_S):
            async with await connected() as peer:
                result: JsonObject = await peer.call(
                    method, params.model_dump(mode="json", by_alias=True, exclude_unset=True)
                )
                return result
    except RpcError as exc:
        if exc.code != METHOD_NOT_FOUND:
            raise
        reason = str(exc)
    except (OSError, ValueError, LoadFailed, anyio.EndOfStream) as exc:
        reason = str(exc) or type(exc).__name__
    logger.info("%s cannot be handed to %s: %s", method, holder, reason)
    return None


def _address_of(servers: RunningServers, holder: Holder) -> tuple[str, Path | None] | None:
    if holder.address is None:
        return None
    try:
        found_servers = servers.all()
    except OSError:
        return None
    for server in found_servers:
        if server.is_running and holder.address in server.entry.addresses:
            found = server.entry.for_clients
            if found is not None:
                url, token_file = found
                return url, None if token_file is None else Path(token_file)
    return None


def _open_client() -> "Callable[..., AbstractAsyncContextManager[Client]]":
    from app_server.peer.connection import open_client

    return open_client
