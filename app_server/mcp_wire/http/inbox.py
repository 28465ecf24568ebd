"""Messages of a server on their way to the client.

Source: docs/mcp.md, "Connections".
"""

import asyncio
from typing import Self

from app_server.mcp_wire.envelopes import ErrorData, JSONRPCError, JSONRPCMessage, RequestId
from app_server.mcp_wire.messages import SessionMessage

MAX_WAITING = 64
"""Queued messages; a further `put` waits."""


class Inbox:
    """The reading end of a transport. It does not end by itself: HTTP does not."""

    def __init__(self) -> None:
        self._messages: asyncio.Queue[SessionMessage] = asyncio.Queue(MAX_WAITING)

    async def put(self, message: JSONRPCMessage) -> None:
        """Bring a message; waits while too many have not been taken."""
        await self._messages.put(SessionMessage(message))

    async def fail(self, request_id: RequestId, error: ErrorData) -> None:
        """Answer one of our requests in place of the server."""
        await self.put(JSONRPCError(jsonrpc="2.0", id=request_id, error=error))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        return await self._messages.get()
