"""Applications on a port of this machine."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import uvicorn

from tests.support.harness import WAIT_S


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listens = asyncio.Event()

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        """Leave signals alone."""
        return contextlib.nullcontext()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listens.set()


@asynccontextmanager
async def listening(app: Any, certificate: Path | None = None) -> AsyncIterator[int]:
    """Serve an ASGI application while the context lasts, and give its port.

    With a `certificate`, a file that has its key too, it is HTTPS.
    """
    config = uvicorn.Config(
        app,
        port=0,
        interface="asgi3",
        lifespan="off",
        ws="none",
        log_config=None,
        ssl_certfile=certificate,
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve())
    with anyio.fail_after(WAIT_S):
        await server.listens.wait()
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await serving
