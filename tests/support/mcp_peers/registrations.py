"""An extension that registers a server with tools."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from app_server.extensions.contract.registration import (
    Registration,
    RuntimeMetadata,
)
from app_server.extensions.contract.registry import ExtensionRegistry, PersistApproval
from app_server.transport.address import Address, TcpAddress
from tests.support.harness import Served, WireClient, serve
from tests.support.mcp_peers.shelf import Generation, Shelf
from tests.support.mcp_peers.web_peer import WebPeer

BEARER = "s3cr3t-bearer"
READ_ONLY = {"readOnlyHint": True}
STARTED = "mcpServer/startupStatus/updated"


def tool(name: str = "look", **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, "annotations": READ_ONLY, **more}


def registered(
    peer: WebPeer,
    owner: Generation,
    metadata: RuntimeMetadata | None = None,
    name: str = "shelved",
    **config: Any,
) -> Registration:
    table = {"url": peer.url, **config}
    return Registration(name, table, SecretStr(BEARER), owner, metadata or RuntimeMetadata())


def call(name: str = "look", arguments: Any = None, server: str = "shelved") -> dict[str, Any]:
    return {"namespace": f"mcp__{server}", "name": name, "arguments": arguments or {}}


@dataclass
class Shop:
    """A server with a shelf, one peer that can be put on it, and a client."""

    served: Served
    client: WireClient
    shelf: Shelf
    peer: WebPeer
    owner: Generation

    def put(self, metadata: RuntimeMetadata | None = None, **config: Any) -> None:
        """Register the peer, in the place of what was registered before."""
        self.shelf.publish(registered(self.peer, self.owner, metadata, **config))

    async def thread(self, **params: Any) -> str:
        """Start a thread and wait until the peer has started."""
        thread_id = await self.client.start_thread(**params)
        await self.client.wait_for(STARTED, lambda p: p["status"] == "ready")
        return thread_id

    def namespaces(self, request: int = -1) -> list[str]:
        """Return the namespaces that a model request declared."""
        tools = self.served.model.requests[request].get("tools", [])
        return [entry["name"] for entry in tools if entry["type"] == "namespace"]


@asynccontextmanager
async def open_shop(
    tmp_path: Path,
    config: str = "",
    persist: PersistApproval | None = None,
    listen: Sequence[Address] = (TcpAddress("127.0.0.1", 0),),
    **peer: Any,
) -> AsyncIterator[Shop]:
    shelf = Shelf()
    persisters = {} if persist is None else {"there": persist}
    registry = ExtensionRegistry([shelf], persisters)
    async with (
        WebPeer(**{"tools": [tool()], **peer}).serve() as web,
        serve(tmp_path, config=config, extensions=registry, listen=listen) as served,
        served.client() as client,
    ):
        yield Shop(served, client, shelf, web, Generation("gen-1"))
