"""Frames of one page to the server and back, unread.

Each side is read as fast as the other one takes what was read: a slow page slows the server's
connection down, which has bounds of its own. Nothing is kept here.
Source: docs/inspector.md, "Access".
"""

import anyio
from websockets.asyncio.connection import Connection
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from app_server.clients.address import ServerAddress
from app_server.clients.inspector.upstream import connection_to
from app_server.clients.token_file import NoToken

NO_SERVER = 4001
"""Close code for the page: nobody answers at the server's address."""
SERVER_CLOSED = 4002
"""Close code for the page: the server ended the connection."""
REFUSED = 4003
"""Close code for the page: the server refuses the inspector, or its token cannot be read."""

MAX_REASON_BYTES = 123
"""Of a close frame."""


async def relay(page: ServerConnection, upstream: ServerAddress) -> None:
    """Connect to the server, and pass frames until one side has gone; then close the page."""
    try:
        async with await connection_to(upstream) as server:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_pass, page, server, tasks.cancel_scope)
                tasks.start_soon(_pass, server, page, tasks.cancel_scope)
            code, reason = server.close_code, server.close_reason or ""
    except InvalidStatus as exc:
        await page.close(REFUSED, f"the server answers with HTTP {exc.response.status_code}")
    except NoToken as exc:
        await page.close(REFUSED, _shortened(str(exc)))
    except (OSError, WebSocketException):
        await page.close(NO_SERVER, "no server answers")
    else:
        # Without an effect where the page has gone first.
        await page.close(SERVER_CLOSED, _shortened(f"{code} {reason}".strip()))


def _shortened(reason: str) -> str:
    """Cut a text so that a close frame has room for it (RFC 6455, section 5.5)."""
    return reason.encode()[:MAX_REASON_BYTES].decode(errors="ignore")


async def _pass(source: Connection, sink: Connection, both: anyio.CancelScope) -> None:
    try:
        while True:
            # Whole messages of text, which need not be decoded to be passed on.
            await sink.send(await source.recv(decode=False), text=True)
    except ConnectionClosed:
        both.cancel()
