"""The demo router, and connections to it without a stream."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from websockets.asyncio.client import ClientConnection, connect

from app_server.clients.receiver.demo_router.server import DemoRouter, open_store
from app_server.clients.receiver.router.wire import (
    RouterAddress,
)
from tests.support.harness import WAIT_S
from tests.support.receiver.peer import KEY


@asynccontextmanager
async def router(path: Path, port: int = 0) -> AsyncIterator[str]:
    """Run a demo router; gives its URL."""
    with open_store(path / "router.sqlite3") as store:
        async with DemoRouter(store, KEY).listen(port) as url:
            yield url


def raw(url: str, session: str = "Texi", since: str | None = None, key: str = KEY) -> connect:
    """Connect to a router by hand."""
    address = RouterAddress(url, session, key)
    headers = {"Authorization": f"Bearer {key}"}
    return connect(
        address.stream_url(since),
        additional_headers=headers,
        proxy=None,
        open_timeout=WAIT_S,
        ping_interval=None,
    )


async def receive_frame(socket: ClientConnection) -> Any:
    """Return the next frame."""
    with anyio.fail_after(WAIT_S):
        return json.loads(await socket.recv())


async def send_frame(socket: ClientConnection, kind: str, **members: Any) -> None:
    await socket.send(json.dumps({"type": kind, **members}))


async def post(url: str, *signals: dict[str, Any], sender: str = "Desiree") -> list[str]:
    """Send signals and return the kinds of the router's words."""
    async with raw(url, sender) as socket:
        words = []
        for one in signals:
            await send_frame(socket, "send", signal=one)
            words.append(str((await receive_frame(socket))["type"]))
        return words
