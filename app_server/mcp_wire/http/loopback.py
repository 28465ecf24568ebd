"""HTTP/1.1 to a server on this machine, without anything that loopback does not need.

No proxy, no encryption, no names: half of what a call over a general client costs. For servers
elsewhere see remote.py; those that only another machine reaches are dialled there, and spoken to
with the same client.
Source: RFC 9112; docs/mcp.md, "Connections".
"""

import asyncio
import os
import socket
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

import httpx2

from app_server.mcp_wire.http.connection import (
    ConnectionReset,
    LoopbackConnection,
    LoopbackResponse,
)
from app_server.mcp_wire.http.exchange import HttpRequest, Unreachable
from app_server.runtime.http.loopback_address import is_loopback_address

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
        self._stack: deque[LoopbackConnection] = deque()
        self._sweep: asyncio.TimerHandle | None = None
        self._is_closed = False

    def put(self, connection: LoopbackConnection) -> None:
        """Keep a connection; above the bound the one that was used longest ago goes."""
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._stack.append(connection)
        if len(self._stack) > MAX_IDLE_CONNECTIONS or self._is_closed:
            self._stack.popleft().close()
        if self._sweep is None and self._stack:
            self._sweep = loop.call_later(IDLE_S, self._close_old, loop)

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
        while self._stack and self._stack[0].idle_since <= loop.time() - IDLE_S:
            self._stack.popleft().close()
        if self._stack:
            oldest = self._stack[0].idle_since
            self._sweep = loop.call_at(oldest + IDLE_S, self._close_old, loop)


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
        self._idle = IdleConnections()

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
        connection = self._idle.take()
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
                    lambda: LoopbackConnection(connected, self._idle.put),
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
        self._idle.close()


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
