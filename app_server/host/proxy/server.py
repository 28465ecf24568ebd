"""The proxy of one command: connections come in on its listener, and leave from this process.

From top to bottom: SOCKS5 (CONNECT without a sign-in, by name or by address), HTTP/1.1 (CONNECT,
and requests with whole URLs, of which a connection carries one), and the listener that tells them
apart.
Source: docs/tools.md, "Network through a proxy"; RFC 1928; RFC 9110 (7.6, 9.3.6), RFC 9112 (3.2).
"""

import asyncio
import errno
import logging
import os
import socket
import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from ipaddress import IPv4Address, IPv6Address
from typing import TypeAlias
from urllib.parse import urlsplit

import anyio
import h11
from pydantic_core import to_json

from app_server.host.proxy.gate import REASONS, Gate, Refusal, Refused
from app_server.host.proxy.upstream import (
    BOUNDS,
    HostUnreachable,
    ProxyBounds,
    Streams,
    closing,
    connect,
    relay,
    until_idle,
)
from app_server.permissions.network import READING, BadHost, Target, plain_host
from app_server.runtime.open_files import limit

VERSION = 5

_NO_SIGN_IN = 0
_NO_METHOD = 0xFF
_CONNECT = 1
_NAME = 3
_ADDRESSES = {1: (4, IPv4Address), 4: (16, IPv6Address)}
"""By kind: bytes, and what they are."""

SUCCEEDED = 0
NOT_ALLOWED = 2
HOST_UNREACHABLE = 4
NO_SUCH_COMMAND = 7
NO_SUCH_ADDRESS = 8


async def serve_socks(streams: Streams, gate: Gate, bounds: ProxyBounds) -> None:
    """Serve one connection whose first byte, the version, was read; the caller closes it.

    Raises:
        OSError: the connection is broken, or the client did not say in time what it wants.
    """
    reader, writer = streams
    try:
        async with asyncio.timeout(bounds.head_s):
            target = await _wanted(reader, writer)
    except asyncio.IncompleteReadError:
        return
    if isinstance(target, int):
        _reply(writer, target)
        return
    try:
        refusal = await gate.decide(target) if gate.policy.has_socks else "not_allowed"
        if refusal is not None:
            _reply(writer, NOT_ALLOWED)
            return
        upstream = await connect(target, gate.policy, bounds)
    except Refused as exc:
        await gate.refused(target, exc.why)
        _reply(writer, NOT_ALLOWED)
        return
    except HostUnreachable:
        _reply(writer, HOST_UNREACHABLE)
        return
    async with closing(upstream[1], bounds):
        _reply(writer, SUCCEEDED)
        await relay(streams, upstream, bounds)


async def _wanted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Target | int:
    """Negotiate no authentication, and return the destination, or the number of a refusal."""
    methods = await reader.readexactly((await reader.readexactly(1))[0])
    has_method = _NO_SIGN_IN in methods
    writer.write(bytes((VERSION, _NO_SIGN_IN if has_method else _NO_METHOD)))
    await writer.drain()
    if not has_method:
        raise asyncio.IncompleteReadError(b"", None)
    version, command, _, kind = await reader.readexactly(4)
    if kind == _NAME:
        host = (await reader.readexactly((await reader.readexactly(1))[0])).decode("latin-1")
    elif kind in _ADDRESSES:
        size, read = _ADDRESSES[kind]
        host = str(read(await reader.readexactly(size)))
    else:
        return NO_SUCH_ADDRESS
    port = int.from_bytes(await reader.readexactly(2), "big")
    if version != VERSION or command != _CONNECT:
        return NO_SUCH_COMMAND
    try:
        return Target(plain_host(host), port, "socks5Tcp")
    except BadHost:
        return NO_SUCH_ADDRESS


def _reply(writer: asyncio.StreamWriter, word: int) -> None:
    """Answer; the address that it could name is of no use to a client."""
    writer.write(bytes((VERSION, word, 0, 1, 0, 0, 0, 0, 0, 0)))


Headers: TypeAlias = list[tuple[bytes, bytes]]

HOP_BY_HOP = frozenset(
    (
        *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization"),
        *(b"proxy-connection", b"te", b"trailer", b"upgrade"),
    )
)
"""Headers that are about one connection and go no further; RFC 9110, 7.6.1. `Transfer-Encoding` is
one too, and is made anew from what it says."""

FRAMING = frozenset((b"content-length", b"transfer-encoding"))
"""Header names of the body's framing, passed on even if `Connection` names them."""

_ERRORS: dict[Refusal, str] = {
    "denied": "blocked-by-denylist",
    "not_allowed": "blocked-by-allowlist",
    "not_allowed_local": "blocked-by-allowlist",
    "method_not_allowed": "blocked-by-method-policy",
}
"""In the header `x-proxy-error`, as Codex has them."""


class BadRequest(Exception):
    """A request that a proxy cannot carry out; the text says why."""


class _Client:
    """The side of the command: one request is read, one response written."""

    def __init__(self, streams: Streams, first: bytes, bounds: ProxyBounds) -> None:
        self.streams = streams
        self.bounds = bounds
        self.state = h11.Connection(h11.SERVER, max_incomplete_event_size=bounds.head_bytes)
        self.state.receive_data(first)

    async def next(self) -> h11.Event | type[h11.PAUSED]:
        """Return the next event of the request.

        Raises:
            h11.RemoteProtocolError: it is no HTTP, ends too early, or its head is too long.
            OSError: the connection is broken.
        """
        return await _next(self.state, self.streams[0], self.bounds)

    async def send(self, *events: h11.Event) -> None:
        """Write a part of the response.

        Raises:
            OSError: the connection is broken.
        """
        for event in events:
            data = self.state.send(event)
            if data:
                self.streams[1].write(data)
        async with asyncio.timeout(self.bounds.idle_s):
            await self.streams[1].drain()

    async def answer(self, status: int, text: bytes, headers: Headers, method: bytes) -> None:
        """Write a whole response."""
        head: Headers = [
            *headers,
            (b"content-length", str(len(text)).encode()),
            (b"connection", b"close"),
        ]
        body = [] if method == b"HEAD" else [h11.Data(data=text)]
        reason = HTTPStatus(status).phrase.encode()
        response = h11.Response(status_code=status, headers=head, reason=reason)
        await self.send(response, *body, h11.EndOfMessage())


async def serve_http(streams: Streams, first: bytes, gate: Gate, bounds: ProxyBounds) -> None:
    """Serve one connection whose first byte was read; the caller closes it.

    Raises:
        OSError: the connection is broken, or the client did not say in time what it wants.
    """
    client = _Client(streams, first, bounds)
    try:
        async with asyncio.timeout(bounds.head_s):
            request = await client.next()
        if isinstance(request, h11.Request):
            await _serve(client, request, gate)
    except (h11.RemoteProtocolError, BadRequest) as exc:
        await _fail(client, 400, str(exc))


async def _serve(client: _Client, request: h11.Request, gate: Gate) -> None:
    target, path = _target_of(request)
    try:
        refusal = await gate.decide(target)
        if refusal is not None:
            raise Refused(refusal)
        if gate.policy.is_limited and request.method.decode() not in READING:
            raise Refused("method_not_allowed")
        upstream = await connect(target, gate.policy, client.bounds)
    except Refused as exc:
        if refusal is None:
            await gate.refused(target, exc.why)
        await _refuse(client, request.method, target, exc.why)
        return
    except HostUnreachable as exc:
        await _fail(client, 502, f"{target.shown()}: {exc}", request.method)
        return
    async with closing(upstream[1], client.bounds):
        if request.method == b"CONNECT":
            await _tunnel(client, upstream)
        else:
            await _forward(client, request, target, path, upstream)


def _target_of(request: h11.Request) -> tuple[Target, bytes]:
    """Return the destination of a request, and the path at that host."""
    try:
        text = request.target.decode("ascii")
        if request.method == b"CONNECT":
            parts = urlsplit(f"//{text}")
            if parts.netloc != text or "@" in text or parts.port is None:
                raise BadRequest("CONNECT needs a host and a port")
            return Target(plain_host(parts.hostname or ""), parts.port, "https"), b""
        parts = urlsplit(text)
        if parts.scheme.lower() != "http" or "@" in parts.netloc:
            raise BadRequest("this is a proxy: it takes CONNECT, and URLs that begin with http://")
        host, port = plain_host(parts.hostname or ""), 80 if parts.port is None else parts.port
    except BadHost as exc:
        raise BadRequest(f"the host of the URL: {exc}") from exc
    except ValueError as exc:
        raise BadRequest("the URL makes no sense") from exc
    path = parts._replace(scheme="", netloc="", fragment="", path=parts.path or "/").geturl()
    return Target(host, port, "http"), path.encode()


async def _tunnel(client: _Client, upstream: Streams) -> None:
    await client.send(h11.Response(status_code=200, headers=[], reason=b"Connection Established"))
    early, _ = client.state.trailing_data
    if early:
        upstream[1].write(early)
    await relay(client.streams, upstream, client.bounds)


async def _forward(
    client: _Client, request: h11.Request, target: Target, path: bytes, upstream: Streams
) -> None:
    """Send the request on, and the response back; the first to fail ends both.

    So does `idle_s` in which nothing moves, either way: a long upload has no response meanwhile.
    """
    state = h11.Connection(h11.CLIENT, max_incomplete_event_size=client.bounds.head_bytes)
    host = f"[{target.host}]" if ":" in target.host else target.host
    host = host if target.port == 80 else f"{host}:{target.port}"
    head = h11.Request(
        method=request.method,
        target=path,
        headers=[(b"host", host.encode()), *_passed_on(request.headers)],
    )
    try:
        async with until_idle(client.bounds.idle_s) as moved:
            sending = asyncio.create_task(_send_request(client, head, state, upstream, moved))
            try:
                await _send_response(client, state, upstream, moved)
            finally:
                sending.cancel()
                with suppress(asyncio.CancelledError, OSError, h11.ProtocolError):
                    await sending
    except (h11.ProtocolError, TimeoutError) as exc:
        # A local one: what came cannot be relayed to this client, as trailers to one of HTTP/1.0.
        if client.state.our_state is h11.SEND_RESPONSE:
            await _fail(client, 502, f"{target.shown()}: {exc}", request.method)


async def _send_request(
    client: _Client,
    head: h11.Request,
    state: h11.Connection,
    upstream: Streams,
    moved: Callable[[], None],
) -> None:
    writer = upstream[1]
    try:
        writer.write(state.send(head) or b"")
        while isinstance(event := await client.next(), h11.Data | h11.EndOfMessage):
            moved()
            writer.write(state.send(event) or b"")
            await writer.drain()
            if isinstance(event, h11.EndOfMessage):
                return
    except (h11.ProtocolError, OSError):
        # There will be no response to half a request.
        writer.close()
        raise


async def _send_response(
    client: _Client, state: h11.Connection, upstream: Streams, moved: Callable[[], None]
) -> None:
    while True:
        event = await _next(state, upstream[0], client.bounds)
        moved()
        match event:
            case h11.InformationalResponse(status_code=101):
                raise h11.RemoteProtocolError("it switched protocols, though nobody asked")
            case h11.InformationalResponse():
                await client.send(event)
            case h11.Response():
                headers = _passed_on(event.headers)
                await client.send(
                    h11.Response(
                        status_code=event.status_code, reason=event.reason, headers=headers
                    )
                )
            case h11.Data():
                await client.send(event)
            case h11.EndOfMessage():
                await client.send(event)
                return
            case _:
                raise h11.RemoteProtocolError("it ended without a response")


def _passed_on(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Return the headers that go further; RFC 9110, 7.6.1, RFC 9112, 6.3."""
    given = [(name.lower(), value) for name, value in headers]
    if any(name == b"transfer-encoding" for name, _ in given):
        # Chunks count. Whoever reads the length instead would take a body for another request.
        given = [(name, value) for name, value in given if name != b"content-length"]
    named = {
        word.strip().lower()
        for name, value in given
        if name == b"connection"
        for word in value.split(b",")
    } - FRAMING
    kept = [
        (name, value)
        for name, value in given
        if name not in HOP_BY_HOP and name not in named and name != b"host"
    ]
    return [*kept, (b"connection", b"close")]


async def _next(
    state: h11.Connection, reader: asyncio.StreamReader, bounds: ProxyBounds
) -> h11.Event | type[h11.PAUSED]:
    while True:
        event = state.next_event()
        if event is not h11.NEED_DATA:
            return event  # type: ignore[return-value]  # mypy does not narrow by identity of classes
        state.receive_data(await reader.read(bounds.piece_bytes))


async def _refuse(client: _Client, method: bytes, target: Target, why: Refusal) -> None:
    refusal = {
        "status": "blocked",
        "host": target.host,
        "reason": why,
        "decision": "deny",
        "protocol": target.protocol,
        "port": target.port,
        "message": f"{target.shown()}: {REASONS[why]}",
    }
    headers: Headers = [
        (b"content-type", b"application/json"),
        (b"x-proxy-error", _ERRORS[why].encode()),
    ]
    await client.answer(403, to_json(refusal), headers, method)


async def _fail(client: _Client, status: int, text: str, method: bytes = b"GET") -> None:
    with suppress(h11.LocalProtocolError):
        headers: Headers = [(b"content-type", b"text/plain; charset=utf-8")]
        await client.answer(status, f"{text}\n".encode(), headers, method)


logger = logging.getLogger(__name__)

SHORTAGE_S = 1.0
"""Before another try while no descriptor is left."""

DESCRIPTOR = struct.Struct("i")
RIGHTS_BYTES = socket.CMSG_LEN(DESCRIPTOR.size)
"""One descriptor, as it comes beside a byte (SCM_RIGHTS, unix(7))."""


class ProxyServer:
    """Waits for the listener of a command that was just started, and serves it until `aclose`."""

    def __init__(self, gate: Gate, network: socket.socket, bounds: ProxyBounds = BOUNDS) -> None:
        """`network` is where the listener arrives; it stays the caller's."""
        self._gate = gate
        self._bounds = bounds
        self._connections: set[asyncio.Task[None]] = set()
        self._accepting = asyncio.get_running_loop().create_task(self._accept_all(network))

    async def aclose(self) -> None:
        """End all connections, and questions that were asked about them.

        To be called when nothing of the command is left.
        """
        # From then on no connection is added.
        self._accepting.cancel()
        await asyncio.wait([self._accepting])
        for task in self._connections:
            task.cancel()
        if self._connections:
            await asyncio.wait(self._connections)

    async def _accept_all(self, network: socket.socket) -> None:
        try:
            listener = await _listener(network)
        except OSError:
            logger.exception("the proxy of a command is not served")
            return
        # Without one the sandbox was ended by what should have made it.
        if listener is not None:
            with listener:
                listener.setblocking(False)
                await self._accept(listener)

    async def _accept(self, listener: socket.socket) -> None:
        shortage = _Shortage("connections of a command to its proxy wait")
        while True:
            await anyio.wait_readable(listener)
            try:
                connection, _ = listener.accept()
            except BlockingIOError:
                continue
            except OSError as exc:
                # They stay in the backlog.
                await shortage.pause(exc.strerror or str(exc))
                continue
            if len(self._connections) >= self._bounds.connections:
                connection.close()
            else:
                await self._begin(connection)

    async def _begin(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        try:
            streams = await asyncio.open_connection(sock=connection, limit=self._bounds.piece_bytes)
        except OSError:
            # Broken already.
            connection.close()
            return
        except BaseException:
            connection.close()
            raise
        task = asyncio.get_running_loop().create_task(self._serve(streams))
        self._connections.add(task)
        task.add_done_callback(partial(self._ended, streams[1]))

    def _ended(self, writer: asyncio.StreamWriter, task: asyncio.Task[None]) -> None:
        self._connections.discard(task)
        # One that was cancelled before its first step has closed nothing.
        writer.transport.abort()

    async def _serve(self, streams: Streams) -> None:
        (reader, writer), bounds = streams, self._bounds
        try:
            async with closing(writer, bounds):
                async with asyncio.timeout(bounds.head_s):
                    first = await reader.read(1)
                if first == bytes((VERSION,)):
                    await serve_socks(streams, self._gate, bounds)
                elif first:
                    await serve_http(streams, first, self._gate, bounds)
        except OSError:
            # Broken, or silent for too long.
            pass
        except Exception:
            logger.exception("a connection through the proxy of a command failed")


async def _listener(network: socket.socket) -> socket.socket | None:
    shortage = _Shortage("the proxy of a command waits")
    while True:
        await anyio.wait_readable(network)
        # A look at first: where no descriptor is left, what is taken is gone.
        # (`socket.recv_fds` passes no flags on in Python 3.11.)
        content, received, _, _ = network.recvmsg(
            1, RIGHTS_BYTES, socket.MSG_PEEK | socket.MSG_CMSG_CLOEXEC
        )
        if received:
            network.recv(1)
            return socket.socket(fileno=DESCRIPTOR.unpack(received[0][2])[0])
        if not content:
            return None
        await shortage.pause(os.strerror(errno.EMFILE))


class _Shortage:
    """Shortage of descriptors: accepting is tried again, and logged once."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._is_logged = False

    async def pause(self, why: str) -> None:
        """Wait for the next try; the first one is logged."""
        if not self._is_logged:
            self._is_logged = True
            logger.warning(
                "%s: %s; this process may have %s files and sockets open (ulimit -n)",
                self._what,
                why,
                limit() or "any number of",
            )
        await anyio.sleep(SHORTAGE_S)
