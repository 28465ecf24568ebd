"""One HTTP/1.1 connection to a server on this machine: a request, its response, the next request.

Bytes are parsed where they arrive, so that a short response is complete when its reader wakes up.
Source: RFC 9112; docs/mcp.md, "Connections".
"""

import asyncio
import socket
from collections.abc import Callable, Mapping
from typing import cast

import httptools

from app_server.mcp_wire.http.exchange import BodyBroken, Unreachable

MAX_HEAD_BYTES = 64 * 1024
"""Of a response's head with what came before it (1xx), and of anything else that is no body."""

MAX_UNREAD_BYTES = 256 * 1024
"""Unread bytes of a body above which reading from the socket pauses."""


class ConnectionReset(Unreachable):
    """The connection was reset before a byte of the response came."""


class LoopbackResponse:
    """A HttpResponse; its connection is that of another one after `aclose`."""

    __slots__ = ("_connection", "headers", "status")

    def __init__(self, connection: "LoopbackConnection") -> None:
        self.status = connection.status
        self.headers: Mapping[str, str] = connection.headers
        self._connection: LoopbackConnection | None = connection

    @property
    def at_end(self) -> bool:
        """Whether no more of the body comes; see HttpResponse."""
        return self._connection is None or self._connection.at_end

    async def receive(self) -> bytes:
        """Return the next piece of the body; see HttpResponse."""
        if self._connection is None:
            raise BodyBroken("the response was closed")
        return await self._connection.receive()

    async def aclose(self) -> None:
        """Give the connection back; see HttpResponse."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.leave()


class LoopbackConnection(asyncio.Protocol):
    """A connection, and the response to the request that was sent last."""

    def __init__(
        self, connected: socket.socket, keep: "Callable[[LoopbackConnection], None]"
    ) -> None:
        """Read from a socket; `keep` is called when the connection is free for another request."""
        self.idle_since: float
        """Start of its idle time in seconds of the event loop's clock; its keeper sets it."""
        self._socket = connected
        self._keep = keep
        self._parser = httptools.HttpResponseParser(self)
        self._failure: str | None = None
        self._was_reset = False
        self._expects_response = False
        self._begin()

    def _begin(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self._has_head = False
        self._is_complete = False
        self._can_stay = False
        self._is_silent = True
        self._not_body = 0
        self._in_headers = 0
        self._pieces: list[bytes] = []
        self._unread = 0
        self._is_paused = False
        self._waiter: asyncio.Future[None] | None = None

    # Our side.

    @property
    def is_stale(self) -> bool:
        """Whether the server has closed it, or sent unrequested bytes, while it was idle."""
        if self._failure is not None:
            return True
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            pass
        return True

    def send(self, data: bytes) -> None:
        """Send a whole request."""
        self._begin()
        self._expects_response = True
        self._transport.write(data)

    async def response(self) -> LoopbackResponse:
        """Wait for status and headers of the response.

        Raises:
            ConnectionReset: the server has not read the request to its end.
            Unreachable: no response came, or none that makes sense.
        """
        while not self._has_head:
            if self._failure is not None:
                if self._was_reset and self._is_silent:
                    raise ConnectionReset(self._failure)
                raise Unreachable(self._failure)
            await self._wait()
        return LoopbackResponse(self)

    @property
    def at_end(self) -> bool:
        """Whether the body was read to its end."""
        return self._is_complete and not self._pieces

    async def receive(self) -> bytes:
        """Return what has come of the body since, empty at its end.

        Raises:
            BodyBroken: it does not come to its end.
        """
        while not self._pieces:
            if self._is_complete:
                return b""
            if self._failure is not None:
                raise BodyBroken(self._failure)
            await self._wait()
        piece = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._unread = 0
        if self._is_paused and self._failure is None:
            self._is_paused = False
            self._transport.resume_reading()
        return piece

    def leave(self) -> None:
        """Become free after a whole response, else close."""
        self._expects_response = False
        # What is left of a request that was answered early would be taken for the next one.
        is_sent = self._transport.get_write_buffer_size() == 0
        if self._failure is None and self._is_complete and self._can_stay and is_sent:
            self._keep(self)
        else:
            self.close()

    def close(self) -> None:
        """Close at once, whatever is under way."""
        if self._failure is None:
            self._failure = "the connection was closed"
        self._transport.abort()

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, reason: str) -> None:
        if self._failure is None:
            self._failure = reason
        self._transport.abort()

    # The event loop's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Parse what came."""
        if self._failure is not None:
            return
        if not self._expects_response:
            self._fail("the server sent what nobody asked for")
            return
        self._is_silent = False
        self._not_body += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail("the server changed the protocol")
        except httptools.HttpParserError:
            # Why is in terms of the parser, and may quote the server.
            self._fail("the response is not valid HTTP")
        else:
            if max(self._not_body, self._in_headers) > MAX_HEAD_BYTES:
                self._fail(f"the response has more than {MAX_HEAD_BYTES} bytes of headers")
            elif self._unread > MAX_UNREAD_BYTES and not self._is_paused:
                self._is_paused = True
                self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        """Take the end of what the server sends; it ends a body that has no other end."""
        if self._has_head and not {"content-length", "transfer-encoding"} & self.headers.keys():
            self._is_complete = True
        if self._failure is None:
            self._failure = "the server closed the connection"

    def connection_lost(self, exc: Exception | None) -> None:
        """Take the end of the connection."""
        if self._failure is None:
            self._failure = (
                "the connection broke" if exc is not None else "the connection was closed"
            )
            self._was_reset = isinstance(exc, ConnectionResetError | BrokenPipeError)
        self._wake()

    # The parser's side.

    def on_message_begin(self) -> None:
        """Begin with a response, or with one that follows where none should."""
        if self._is_complete:
            self._can_stay = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; what comes behind the body is not looked at."""
        if self._has_head:
            return
        self._in_headers += len(name) + len(value) + 4  # a colon, a space and a line end
        key = name.lower().decode("latin-1")
        text = value.decode("latin-1")
        self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text

    def on_headers_complete(self) -> None:
        """Take the end of a head."""
        if self._has_head:
            return
        self.status = self._parser.get_status_code()
        if self.status < 200:
            self.headers = {}
        elif self._in_headers <= MAX_HEAD_BYTES:
            self._has_head = True

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        if not self._is_complete:
            self._pieces.append(body)
            self._unread += len(body)
            self._not_body = 0

    def on_message_complete(self) -> None:
        """Take the end of the body."""
        if self._has_head and not self._is_complete:
            self._is_complete = True
            self._can_stay = self._parser.should_keep_alive()
