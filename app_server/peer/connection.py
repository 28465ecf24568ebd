"""A conversation with an app-server from the client's side, over a WebSocket or another pipe.

One task, one thing at a time: a call reads until its answer comes, and keeps the events it meets.
Knows: requests, answers, notifications. Does not know: what any method means.
"""

import itertools
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import anyio
from pydantic_core import from_json, to_json
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, WebSocketException

from app_server.peer.address import ServerAddress
from protocol.jsonrpc.errors import METHOD_NOT_FOUND, RpcError
from protocol.model import Json, JsonObject

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
WAIT_S = 30.0
"""For an answer or an event, unless the client of a conversation or a call has another limit."""

MAX_KEPT_EVENTS = 10_000
"""Unawaited events that are kept; beyond it the oldest are dropped."""
MAX_KEPT_CHARS = 64 * 1024 * 1024
"""Of these events together, as JSON; beyond it the oldest are forgotten too."""

Event: TypeAlias = JsonObject
"""A notification: `method`, `params`, `emittedAtMs`."""


class FrameStream(Protocol):
    """A pipe of whole messages to a server."""

    async def receive(self) -> str:
        """Return the next message. It may be cancelled, and loses none.

        Raises:
            anyio.EndOfStream: the server has gone.
        """

    async def send(self, text: str) -> None:
        """Send a message.

        Raises:
            anyio.BrokenResourceError: the server has gone.
        """


class SocketFrames:
    """Messages over a WebSocket."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    async def receive(self) -> str:
        """See FrameStream."""
        try:
            return await self._socket.recv(decode=True)
        except ConnectionClosed as exc:
            raise anyio.EndOfStream from exc

    async def send(self, text: str) -> None:
        """See FrameStream."""
        try:
            await self._socket.send(text)
        except ConnectionClosed as exc:
            raise anyio.BrokenResourceError from exc


class _KeptEvents:
    """Unawaited events, oldest first."""

    def __init__(self) -> None:
        self._events: deque[tuple[Event, int]] = deque()
        self._chars = 0

    def keep(self, event: Event, chars: int) -> None:
        self._events.append((event, chars))
        self._chars += chars
        while len(self._events) > MAX_KEPT_EVENTS or self._chars > MAX_KEPT_CHARS:
            self.take()

    def take(self) -> Event | None:
        if not self._events:
            return None
        event, chars = self._events.popleft()
        self._chars -= chars
        return event


class Client:
    """One connection. Use `open_client`, which also shakes hands."""

    def __init__(self, frames: FrameStream, wait_s: float = WAIT_S) -> None:
        self._frames = frames
        self._ids = itertools.count(1)
        self._events = _KeptEvents()
        self.server: Json = None
        """Result of the handshake."""
        self._wait_s = wait_s

    async def call(
        self, method: str, params: JsonObject, *, timeout_s: float | None = None
    ) -> Json:
        """Call a method and return its result.

        Raises:
            RpcError: the server answered with an error.
            TimeoutError: no answer in time.
            anyio.EndOfStream: the connection has ended.
        """
        call_id = next(self._ids)
        await self._send({"id": call_id, "method": method, "params": params})
        with _within(self._limit(timeout_s), f"answer to {method}"):
            while True:
                message, chars = await self._receive()
                if "method" in message:
                    self._events.keep(message, chars)
                elif message.get("id") == call_id:
                    break
        error = message.get("error")
        if error is not None:
            raise RpcError(error["code"], error["message"], data=error.get("data"))
        return message["result"]

    async def wait_for(
        self, method: str, matches: Callable[[JsonObject], bool], *, timeout_s: float | None = None
    ) -> JsonObject:
        """Return the params of the first event that matches, and forget what came before it.

        Raises:
            TimeoutError: no such event in time.
            anyio.EndOfStream: the connection has ended.
        """
        with _within(self._limit(timeout_s), f"event {method} that was waited for"):
            while True:
                event = await self.next_event()
                if event.get("method") == method and matches(event["params"]):
                    params: JsonObject = event["params"]
                    return params

    async def asked(self, method: str) -> tuple[Json, JsonObject]:
        """Return id and params of the next request of the server for a method.

        Events that came before it are forgotten; `reply` answers it.

        Raises:
            TimeoutError: no such request in time.
            anyio.EndOfStream: the connection has ended.
        """
        with _within(self._wait_s, f"request {method}"):
            while True:
                message = await self.next_event()
                if message.get("method") == method and "id" in message:
                    params: JsonObject = message["params"]
                    return message["id"], params

    async def next_event(self) -> Event:
        """Return the next event, or request of the server (with an `id`), however long it takes.

        It may be cancelled, and loses none.

        Raises:
            anyio.EndOfStream: the connection has ended.
        """
        kept = self._events.take()
        return (await self._receive())[0] if kept is None else kept

    async def reply(self, request_id: Json, result: JsonObject) -> None:
        """Answer a request of the server."""
        await self._send({"id": request_id, "result": result})

    async def leave_to_others(self, request_id: Json) -> None:
        """Answer a request of the server as a client that does not know its method.

        Other clients may answer it; where there is none, it is refused.
        """
        error = {"code": METHOD_NOT_FOUND, "message": "nobody is asked here"}
        await self._send({"id": request_id, "error": error})

    async def notify(self, method: str) -> None:
        """Send the server a notification without parameters."""
        await self._send({"method": method})

    def _limit(self, timeout_s: float | None) -> float:
        return self._wait_s if timeout_s is None else timeout_s

    async def _send(self, message: JsonObject) -> None:
        try:
            await self._frames.send(to_json(message).decode())
        except anyio.BrokenResourceError as exc:
            raise anyio.EndOfStream from exc

    async def _receive(self) -> tuple[JsonObject, int]:
        """Return the next message and how many characters its text has."""
        text = await self._frames.receive()
        return from_json(text), len(text)


@contextmanager
def _within(timeout_s: float, what: str) -> Iterator[None]:
    """Fail after a while, and say what did not come."""
    try:
        with anyio.fail_after(timeout_s):
            yield
    except TimeoutError as exc:
        raise TimeoutError(f"no {what} in {timeout_s:g} s") from exc


@asynccontextmanager
async def open_client(
    url: str,
    name: str,
    *,
    wait_s: float = WAIT_S,
    token_file: Path | None = None,
    **capabilities: Any,
) -> AsyncIterator[Client]:
    """Connect to `ws://` or `unix://` and shake hands; the connection lasts as long as the context.

    `wait_s` is the limit of each call and wait that has none of its own. `token_file` has the token
    that the server wants.

    Raises:
        ValueError: this is no such address.
        OSError: nobody listens there, it is no app-server, or there is no token in the file;
            TokenWanted, where the server wants another one.
        RpcError: the server refuses the handshake.
    """
    async with ServerAddress(url, token_file).opened(max_size=MAX_MESSAGE_BYTES) as socket:
        yield await introduced(SocketFrames(socket), name, wait_s, capabilities)


async def introduced(
    frames: FrameStream, name: str, wait_s: float, capabilities: JsonObject
) -> Client:
    """Shake hands over a pipe.

    Raises:
        RpcError: the server refuses the handshake.
    """
    client = Client(frames, wait_s)
    client.server = await client.call(
        "initialize",
        {"clientInfo": {"name": name, "version": "1"}, "capabilities": capabilities},
    )
    await client.notify("initialized")
    return client


class NoAppServer(Exception):
    """Something answers there, and it is no app-server."""


async def identify(
    url: str, name: str, *, timeout_s: float, token_file: Path | None = None
) -> JsonObject:
    """Return how an app-server introduces itself: `userAgent`, `codexHome` and more.

    Raises:
        ConnectionRefusedError: nobody listens there.
        NoAppServer: somebody else does, or there is no answer in time.
    """
    try:
        with anyio.fail_after(timeout_s):
            async with open_client(url, name, token_file=token_file) as client:
                server = client.server
    except ConnectionRefusedError:
        raise
    except (OSError, ValueError, TimeoutError, RpcError, WebSocketException) as exc:
        raise NoAppServer from exc
    except (anyio.EndOfStream, KeyError, TypeError, AttributeError) as exc:
        # Messages, but not ours.
        raise NoAppServer from exc
    if not isinstance(server, dict) or not isinstance(server.get("userAgent"), str):
        raise NoAppServer
    return server
