"""A client that has many requests in flight, and runs turns to their ends."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from app_server.clients.app_connection import AppConnection
from app_server.peer.address import HandshakeFailed, ServerAddress
from protocol.jsonrpc.errors import RpcError
from protocol.model import Json, JsonObject

OPEN_S = 60.0
"""For the opening of a connection: a machine that is measured may be busy."""


class Conversation(AppConnection):
    """One connection; calls may overlap. Events other than the ends of turns are dropped."""

    async def call(
        self, method: str, params: JsonObject, when_sent: Callable[[], None] = lambda: None
    ) -> Json:
        """Call a method and return its result; errors name the method. See AppConnection."""
        try:
            return await super().call(method, params, when_sent)
        except RpcError as exc:
            raise RpcError(exc.code, f"{method}: {exc.message}", data=exc.data) from exc

    async def turn(self, thread_id: str, text: str) -> None:
        """Run a turn of a thread to its end.

        Raises:
            RpcError: the server refused it.
            ConnectionError: the connection has ended, or the turn has not completed well.
        """
        ended: asyncio.Future[JsonObject] = asyncio.get_running_loop().create_future()
        self._answers[thread_id] = ended
        try:
            given = [{"type": "text", "text": text}]
            await self.call("turn/start", {"threadId": thread_id, "input": given})
            turn = await ended
        finally:
            del self._answers[thread_id]
        if turn["status"] != "completed":
            raise ConnectionError(f"a turn ended as {turn['status']}: {turn.get('error')}")

    def _take(self, message: Json) -> None:
        if message.get("method") == "turn/completed":
            self._settle(message["params"]["threadId"], message["params"]["turn"])
        else:
            super()._take(message)


@asynccontextmanager
async def converse(address: ServerAddress) -> AsyncIterator[Conversation]:
    """Connect to an app-server and shake hands, with its experimental members.

    Raises:
        ValueError: this is no `ws://` or `unix://` URL.
        OSError: nobody listens there, or no app-server, or there is no token in the file.
        RpcError: the server refuses the handshake.
    """
    async with contextlib.AsyncExitStack() as stack:
        try:
            opening = address.opened(max_size=None, open_timeout=OPEN_S)
            socket = await stack.enter_async_context(opening)
        except HandshakeFailed as exc:
            raise ConnectionError(f"{address.url}: {exc}") from exc
        conversation = Conversation(socket)
        reader = asyncio.create_task(conversation.run())
        try:
            await conversation.initialize(name="bench", version="1")
            yield conversation
        finally:
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reader
