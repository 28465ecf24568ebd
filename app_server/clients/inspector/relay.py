"""Frames of one page to the server and back, unread.

Each side is read as fast as the other one takes what was read: a slow page slows the server's
connection down, which has bounds of its own. Nothing is kept here.
Source: docs/inspector.md, "Access".
"""

import anyio
from websockets.asyncio.connection import Connection
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from app_server.clients.inspector.upstream import Upstream

NO_SERVER = 4001
"""Close code for the page: nobody answers at the server's address."""
SERVER_CLOSED = 4002
"""Close code for the page: the server ended the connection."""
REFUSED = 4003
"""Close code for the page: the server refuses the inspector."""

MAX_REASON_CHARS = 100
"""Of a close frame, which has room for 123 bytes (RFC 6455, section 5.5)."""


async def relay(page: ServerConnection, upstream: Upstream) -> None:
    """Connect to the server, and pass frames until one side has gone; then close the page."""
    try:
        async with upstream.connect() as server:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_pass, page, server, tasks.cancel_scope)
                tasks.start_soon(_pass, server, page, tasks.cancel_scope)
            code, reason = server.close_code, server.close_reason or ""
    except InvalidStatus as exc:
        await page.close(REFUSED, f"the server answers with HTTP {exc.response.status_code}")
    except (OSError, WebSocketException):
        await page.close(NO_SERVER, "no server answers")
    else:
        # Without an effect where the page has gone first.
        await page.close(SERVER_CLOSED, f"{code} {reason}".strip()[:MAX_REASON_CHARS])


async def _pass(source: Connection, sink: Connection, both: anyio.CancelScope) -> None:
    try:
        while True:
            # Whole messages of text, which need not be decoded to be passed on.
            await sink.send(await source.recv(decode=False), text=True)
    except ConnectionClosed:
        both.cancel()
