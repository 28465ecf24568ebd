"""A port of this machine that is open before anything is imported that serves it.

Source: docs/apps.md, "Generations".
"""

import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import ModuleType
from typing import TYPE_CHECKING

import anyio

from app_server.runtime.http.backlog import open_port
from app_server.runtime.loader import RETRY_FIRST_S, LoadFailed, load

if TYPE_CHECKING:
    from starlette.types import ASGIApp

logger = logging.getLogger(__name__)


@asynccontextmanager
async def serve_when_wanted(app: "ASGIApp") -> AsyncIterator[int]:
    """Serve as `serve_on_loopback` does, from the first connection on; gives the port.

    Raises:
        OSError: no port can be opened.
    """
    with open_port() as listener:
        listener.setblocking(False)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_serve_when_wanted, app, listener)
            try:
                yield listener.getsockname()[1]
            finally:
                tasks.cancel_scope.cancel()


async def _serve_when_wanted(app: "ASGIApp", listener: socket.socket) -> None:
    while True:
        await anyio.wait_readable(listener)
        try:
            server = await load(_server)
        except LoadFailed as exc:
            # Whoever waits is tried again.
            logger.warning("a port of this machine cannot be served: %s", exc)
            await anyio.sleep(RETRY_FIRST_S)
            continue
        async with server.serving(app, listener):
            await anyio.sleep_forever()


def _server() -> ModuleType:
    from app_server.runtime.http import loopback_server

    return loopback_server
