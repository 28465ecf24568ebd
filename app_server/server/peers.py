"""Calls to the other servers of the home, one connection each.

Source: docs/signals.md, "Several servers".
"""

import logging
from collections.abc import Callable
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

logger = logging.getLogger(__name__)

CALL_S = 5.0
"""For a call to another server, with its connection."""


class HomePeers:
    """The servers that announce themselves in a home; their tokens are read there."""

    def __init__(self, servers: RunningServers) -> None:
        self._servers = servers

    async def call(self, holder: Holder, method: str, params: WireModel) -> JsonObject | None:
        """Call a method of the server that holds a thread; see Peers.call."""
        address = await anyio.to_thread.run_sync(_address_of, self._servers, holder)
        if address is None:
            return None
        url, token_file = address
        try:
            connect = await load(_open_client)
            with anyio.fail_after(CALL_S):
                async with connect(
                    url, PEER_NAME, token_file=token_file, experimentalApi=True
                ) as peer:
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
