"""HTTP/1.1 as a proxy speaks it: CONNECT, and requests with whole URLs.

A connection carries one request: the proxy looks at each, and says `Connection: close` both ways.
Source: docs/tools.md, "Network through a proxy"; RFC 9110 (7.6, 9.3.6), RFC 9112 (3.2).
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from http import HTTPStatus
from typing import TypeAlias
from urllib.parse import urlsplit

import h11
from pydantic_core import to_json

from app_server.host.proxy.gate import REASONS, Gate, Refusal, Refused
from app_server.host.proxy.upstream import (
    HostUnreachable,
    ProxyBounds,
    Streams,
    closing,
    connect,
    relay,
    until_idle,
)
from app_server.permissions.network import READING, BadHost, Target, plain_host

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
    target, path = _wanted(request)
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


def _wanted(request: h11.Request) -> tuple[Target, bytes]:
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
