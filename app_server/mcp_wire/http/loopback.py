"""HTTP/1.1 to a server on this machine, without anything that loopback does not need.

No proxy, no encryption, no names: half of what a call over a general client costs. For servers
elsewhere see remote.py; those that only another machine reaches are dialled there, and spoken to
with the same client. Bytes are parsed where they arrive, so that a short response is complete when
its reader wakes up.
Source: RFC 9112; docs/mcp.md, "Connections".
"""

import asyncio
import os
import socket
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TypeAlias, cast

import httptools
import httpx2

from app_server.mcp_wire.http.exchange import BodyBroken, HttpRequest, Unreachable
from app_server.runtime.http.loopback_address import is_loopback_address

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


CONNECT_S = 15.0

Dial: TypeAlias = Callable[[str, int], Awaitable[socket.socket]]
"""Connects to a host and port; gives a socket that does not block, or raises OSError."""

MAX_IDLE_CONNECTIONS = 32
"""Kept for later requests: as many as there are calls of one response of a model."""

IDLE_S = 30.0
"""Seconds that an idle connection is kept."""


def is_loopback(url: httpx2.URL) -> bool:
    """Whether an address is plain HTTP to an IP address of this machine; names are not."""
    return url.scheme == "http" and is_loopback_address(url.host)


class IdleConnections:
    """Connections that are free, the one that was used last on top."""

    def __init__(self) -> None:
        self.max_connections = MAX_IDLE_CONNECTIONS
        """Connections that are kept."""
        self.idle_s = IDLE_S
        """Seconds that one is kept."""
        self._stack: deque[LoopbackConnection] = deque()
        self._sweep: asyncio.TimerHandle | None = None
        self._is_closed = False

    def put(self, connection: LoopbackConnection) -> None:
        """Keep a connection; above the bound the one that was used longest ago goes."""
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._stack.append(connection)
        if len(self._stack) > self.max_connections or self._is_closed:
            self._stack.popleft().close()
        if self._sweep is None and self._stack:
            self._sweep = loop.call_later(self.idle_s, self._close_old, loop)

    def take(self) -> LoopbackConnection | None:
        """Return a connection that the server has not closed, if there is one."""
        while self._stack:
            connection = self._stack.pop()
            if not connection.is_stale:
                return connection
            connection.close()
        return None

    def close(self) -> None:
        """Close all, and from now on every one that becomes free."""
        self._is_closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        while self._stack:
            self._stack.pop().close()

    def _close_old(self, loop: asyncio.AbstractEventLoop) -> None:
        self._sweep = None
        while self._stack and self._stack[0].idle_since <= loop.time() - self.idle_s:
            self._stack.popleft().close()
        if self._stack:
            oldest = self._stack[0].idle_since
            self._sweep = loop.call_at(oldest + self.idle_s, self._close_old, loop)


class LoopbackSender:
    """A HttpSender for one origin: `is_loopback` holds for it, or it is dialled elsewhere.

    How many requests are under way at a time is for their sender to bound.
    """

    def __init__(
        self, url: httpx2.URL, dial: Dial | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        """Prepare for the origin of a URL.

        `dial` connects to it on another machine; `tls` is for an origin of `https`.
        """
        self._origin = url.scheme, url.netloc
        self._address = (url.host, url.port or (80 if tls is None else 443))
        self._dial = dial or _connect_here
        self._tls = tls
        self._host = url.netloc.decode("ascii")
        self.idle = IdleConnections()
        """Connections for later requests."""

    async def send(self, request: HttpRequest) -> LoopbackResponse:
        """Send a request; see HttpSender.

        It is sent once more, on a new connection, if one that had been idle was reset before a byte
        of the response came: the server closed it while the request was on its way, unread. A
        connection that is merely closed after the request proves nothing: the server may have
        read it, and acted.
        """
        if (request.url.scheme, request.url.netloc) != self._origin:
            raise Unreachable("a redirect leads to another origin")
        data = _render(request, self._host)
        connection = self.idle.take()
        if connection is not None:
            try:
                return await _exchange(connection, data)
            except ConnectionReset:
                pass
        return await _exchange(await self._connect(), data)

    async def _connect(self) -> LoopbackConnection:
        loop = asyncio.get_running_loop()
        ours: socket.socket | None = None
        try:
            async with asyncio.timeout(CONNECT_S):
                ours = connected = await self._dial(*self._address)
                _, connection = await loop.create_connection(
                    lambda: LoopbackConnection(connected, self.idle.put),
                    sock=connected,
                    ssl=self._tls,
                    server_hostname=None if self._tls is None else self._address[0],
                )
        except BaseException as exc:
            if ours is not None:
                ours.close()
            if isinstance(exc, TimeoutError):
                raise Unreachable(f"no connection within {CONNECT_S:g} seconds") from None
            if isinstance(exc, ssl.SSLError):
                raise Unreachable(str(exc)) from exc
            if isinstance(exc, OSError):
                why = os.strerror(exc.errno) if exc.errno else "no connection"
                raise Unreachable(why) from exc
            raise
        return connection

    def close(self) -> None:
        """Close the connections that are idle, and the others when they become free."""
        self.idle.close()


async def _connect_here(host: str, port: int) -> socket.socket:
    ours = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        ours.setblocking(False)
        ours.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(ours, (host, port))
    except BaseException:
        ours.close()
        raise
    return ours


async def _exchange(connection: LoopbackConnection, data: bytes) -> LoopbackResponse:
    connection.send(data)
    try:
        return await connection.response()
    except BaseException:
        connection.close()
        raise


def _render(request: HttpRequest, host: str) -> bytes:
    lines = [f"{request.method} {request.url.raw_path.decode('ascii')} HTTP/1.1"]
    if "host" not in request.headers:
        lines.append(f"host: {host}")
    lines += [f"{name}: {value}" for name, value in request.headers.items()]
    if request.method == "POST":
        lines.append(f"content-length: {len(request.body)}")
    head = "\r\n".join(lines)
    # Whoever can put a line end into a header writes requests of their own.
    if head.count("\n") != len(lines) - 1 or head.count("\r") != len(lines) - 1:
        raise Unreachable("a header has a line end in it")
    try:
        return f"{head}\r\n\r\n".encode("latin-1") + request.body
    except UnicodeEncodeError:
        raise Unreachable("a header has characters that HTTP does not know") from None


@asynccontextmanager
async def open_loopback(
    url: httpx2.URL, dial: Dial | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[LoopbackSender]:
    """Open a sender for the origin of a URL; leaving closes its connections.

    `dial` connects to it on another machine; `tls` is for an origin of `https`.
    """
    sender = LoopbackSender(url, dial, tls)
    try:
        yield sender
    finally:
        sender.close()
