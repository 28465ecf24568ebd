"""A port of this machine that is open before anything is imported that serves it.

Source: docs/apps.md, "Generations".
"""

import logging
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import ModuleType
from typing import TYPE_CHECKING

import anyio

from app_server.runtime.http.backlog import BACKLOG
from app_server.runtime.loader import RETRY_FIRST_S, LoadFailed, load

if TYPE_CHECKING:
    from starlette.types import ASGIApp

logger = logging.getLogger(__name__)

HOST = "127.0.0.1"


@contextmanager
def open_port() -> Iterator[socket.socket]:
    """Listen on a free port while the context lasts.

    Raises:
        OSError: no port can be opened.
    """
    # Without the explicit protocol asyncio leaves Nagle's algorithm on, at 40 ms a request.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    with listener:
        listener.bind((HOST, 0))
        listener.listen(BACKLOG)
        yield listener


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
