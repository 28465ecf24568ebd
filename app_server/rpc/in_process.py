"""Client of the app-server in its own process: a pipe in memory, and calls, events and questions.

Other protocols are offered so: what speaks one to its client is a client of the app-server itself.
Source: docs/wire.md, "Framing"; docs/mcp_server.md, "Start and end"; docs/acp.md, "Threads".
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Protocol

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from pydantic_core import to_json

from app_server.rpc.message_stream import MessageStream
from protocol.jsonrpc.envelope import Answer, Notification, Request, RequestId, parse_message
from protocol.jsonrpc.errors import INTERNAL_ERROR, ErrorObject, RpcError
from protocol.model import Json, JsonObject

MAX_WAITING = 16
"""Messages in each direction; the next `send` waits."""


class PipeEnd:
    """One end of a pipe, as a MessageStream; closing either end ends both."""

    def __init__(
        self,
        incoming: MemoryObjectReceiveStream[str],
        outgoing: MemoryObjectSendStream[str],
        from_peer: MemoryObjectSendStream[str],
    ) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._from_peer = from_peer

    async def receive(self) -> str:
        """Return the next message.

        Raises:
            anyio.EndOfStream: an end was closed, and nothing is left to read.
        """
        try:
            return await self._incoming.receive()
        except anyio.ClosedResourceError as exc:
            raise anyio.EndOfStream from exc

    async def send(self, *texts: str) -> None:
        """Send messages, in their order.

        Raises:
            anyio.BrokenResourceError: an end was closed.
        """
        try:
            for text in texts:
                await self._outgoing.send(text)
        except anyio.ClosedResourceError as exc:
            raise anyio.BrokenResourceError from exc

    async def aclose(self, code: int = 1000, reason: str = "") -> None:
        """Close the pipe: the other end may still read queued messages."""
        self._outgoing.close()
        # Ends a `receive` of our own that waits.
        self._from_peer.close()
        self._incoming.close()


def open_pipe() -> tuple[PipeEnd, PipeEnd]:
    """Make a pipe; gives both ends, each of which has to be closed."""
    to_left, from_right = anyio.create_memory_object_stream[str](MAX_WAITING)
    to_right, from_left = anyio.create_memory_object_stream[str](MAX_WAITING)
    return PipeEnd(from_right, to_right, to_left), PipeEnd(from_left, to_left, to_right)


class Listener(Protocol):
    """Receiver of requests and events of the app-server. Both are awaited before the next read."""

    async def on_event(self, event: Notification) -> None:
        """Take an event."""

    async def question(self, question: Request) -> None:
        """Take a question; it is answered later, with `AppClient.answer`."""


class AppClient:
    """One connection."""

    def __init__(self, stream: MessageStream) -> None:
        self._stream = stream
        self._ids = itertools.count(1)
        self._waiting: dict[RequestId, tuple[asyncio.Future[Json], Callable[[Json], None]]] = {}
        self._closed = False

    async def run(self, listener: Listener) -> None:
        """Read until the app-server closes; then every call fails."""
        try:
            while True:
                match parse_message(await self._stream.receive()):
                    case Answer() as answer:
                        self._settle(answer)
                    case Notification() as event:
                        await listener.on_event(event)
                    case Request() as question:
                        await listener.question(question)
        except anyio.EndOfStream:
            pass
        finally:
            self._closed = True
            for future, _ in self._waiting.values():
                if not future.done():
                    future.set_exception(_gone())

    async def call(
        self,
        method: str,
        params: JsonObject,
        when_answered: Callable[[Json], None] = lambda result: None,
    ) -> Json:
        """Call a method and return its result.

        `when_answered` gets the result before the next message is read, so that no event which
        follows from it is missed.

        Raises:
            RpcError: the app-server answered with an error, or has gone.
        """
        if self._closed:
            raise _gone()
        call_id = next(self._ids)
        future: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._waiting[call_id] = future, when_answered
        try:
            await self._send({"id": call_id, "method": method, "params": params})
            return await future
        finally:
            del self._waiting[call_id]
            if future.done() and not future.cancelled():
                # Also read where sending failed first.
                future.exception()

    async def notify(self, method: str) -> None:
        """Send the app-server a notification without parameters."""
        await self._send({"method": method})

    def answer(self, question_id: RequestId, result: JsonObject) -> Awaitable[None]:
        """Answer a question."""
        return self._send({"id": question_id, "result": result})

    def refuse(self, question_id: RequestId, error: RpcError) -> Awaitable[None]:
        """Answer a question with an error."""
        return self._send({"id": question_id, "error": error.to_wire().model_dump(mode="json")})

    async def _send(self, message: JsonObject) -> None:
        try:
            await self._stream.send(to_json(message).decode())
        except anyio.BrokenResourceError as exc:
            raise _gone() from exc

    def _settle(self, answer: Answer) -> None:
        future, when_answered = self._waiting.get(answer.id, (None, None))
        if future is None or when_answered is None or future.done():
            return
        if answer.error is None:
            when_answered(answer.result)
            future.set_result(answer.result)
            return
        error = ErrorObject.model_validate(answer.error)
        future.set_exception(RpcError(error.code, error.message, data=error.data))


def _gone() -> RpcError:
    return RpcError(INTERNAL_ERROR, "the app-server has stopped")
