"""An MCP server behind a URL: Streamable HTTP, with what the SDK's transport leaves open closed.

A transport error would end the SDK's whole connection: here it becomes the answer to the one
request that met it. Bodies are bounded, and uncompressed. An ambient proxy never
sees loopback traffic. Redirects are the SDK's rule: same origin, same method.
Source: MCP 2025-06-18, "Transports"; docs/mcp.md, "Connections".
"""

import ipaddress
import math
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, Protocol, TypeAlias
from urllib.request import getproxies, proxy_bypass

import anyio.to_thread
import httpx2
from mcp.client.streamable_http import streamable_http_client
from pydantic_core import from_json, to_json

from app_server.mcp.errors import OAuthFailed
from app_server.mcp.exchange import Exchange, Exchanges, GivenUp
from protocol.lifecycle import PROTOCOL_VERSION
from protocol.model import JsonObject

Streams: TypeAlias = tuple[Any, Any]
"""What the SDK's transports give: a stream of messages in, and one out."""

MAX_BODY_BYTES = 64 * 1024 * 1024
"""Bytes of one response to a POST, and of one event; the request it answers fails above it."""

MAX_READ_BYTES = 1024 * 1024
"""A message of ours above this is not looked into, and taken for a request that lasts."""

MAX_CONNECTIONS = 100
"""To one server; a call above that waits for another to end."""

MAX_IDLE_CONNECTIONS = 4
"""Kept for later calls; each request looks at all of them first, so that more of them cost time."""

CONNECT_S = 15.0

GOODBYE_S = 2.0
"""For the DELETE that ends a session."""

ONE_WAY_S = 10.0
"""For a notification or an answer to be taken; the SDK sends nothing else meanwhile."""

UNREACHABLE = -32000
"""Code of the error that stands for a response we did not get."""

SESSION_ENDED = "the server has ended the session"
"""Stands for a 404 to a request in a session: the server has not accepted it."""

SESSION_HEADER = "mcp-session-id"

NOT_READ: JsonObject = {}
"""Stands for a message of ours that was not looked into."""


class BodyTooLarge(httpx2.StreamError):
    """A response passed its bound."""


class BodyBroken(httpx2.StreamError):
    """A response did not come to its end."""


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(
        self,
        inner: httpx2.AsyncByteStream,
        exchange: Exchange,
        limit: float,
        on_close: Callable[[], None],
    ) -> None:
        self._inner = inner
        self._exchange = exchange
        self._limit = limit
        self._on_close = on_close

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = self._limit
        chunks = aiter(self._inner)
        try:
            while (chunk := await self._exchange.wait_for(lambda: anext(chunks, None))) is not None:
                left -= len(chunk)
                if left < 0:
                    raise BodyTooLarge(f"the response is larger than {self._limit} bytes")
                yield chunk
        except httpx2.TransportError as exc:
            # What is no StreamError would end the SDK's whole connection.
            raise BodyBroken(str(exc) or type(exc).__name__) from exc

    async def aclose(self) -> None:
        self._on_close()
        await self._inner.aclose()


class Tokens(Protocol):
    """Where tokens come from, or other texts that show who we are."""

    async def current(self) -> str | None:
        """Return the token to send, None without one."""

    async def replace(self, refused: str | None) -> str | None:
        """Return another one than was refused, None when there is none."""

    def stored(self) -> str | None:
        """Return the token that was used last, without renewing it."""

    def headers(self, credential: str) -> Mapping[str, str]:
        """Return the headers of a request that a token makes."""


class AuthorizedTransport(httpx2.AsyncBaseTransport):
    """Sends a token with every request to one origin, and another one after a 401."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, url: httpx2.URL, tokens: Tokens) -> None:
        self._inner = inner
        self._url = url
        self._tokens = tokens

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request.

        Raises:
            httpx2.ConnectError: there is a token, but it cannot be had now.
        """
        if not _same_origin(request.url, self._url):
            return await self._inner.handle_async_request(request)
        if request.method == "DELETE":
            # A goodbye is not worth a new token.
            return await self._send(request, self._tokens.stored())
        try:
            token = await self._tokens.current()
            response = await self._send(request, token)
            if response.status_code != 401:
                return response
            other = await self._tokens.replace(token)
        except OAuthFailed as exc:
            raise httpx2.ConnectError(str(exc)) from None
        if other is None or other == token:
            return response
        await response.aclose()
        return await self._send(request, other)

    async def _send(self, request: httpx2.Request, token: str | None) -> httpx2.Response:
        if token is not None:
            request.headers.update(self._tokens.headers(token))
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Contains failures: every request gets a response, and no response is endless."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner
        self._exchanges = Exchanges()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; what goes wrong comes back as a JSON-RPC error."""
        if request.headers.get(SESSION_HEADER) == "":
            del request.headers[SESSION_HEADER]
        if request.method == "DELETE":
            return await self._send(request, Exchange(), limit_s=GOODBYE_S)
        message = _message_of(request)
        exchange = self._exchanges.begin(message)
        if request.method == "GET":
            # Lasts as long as the connection, or as the request whose answer it takes up again.
            response = await self._send(request, exchange)
            return _bounded(response, exchange, limit=math.inf)
        is_one_way = message is not NOT_READ and not ("id" in message and "method" in message)
        response = await self._send(request, exchange, limit_s=ONE_WAY_S if is_one_way else None)
        response = _bounded(response, exchange, on_close=lambda: self._exchanges.end(message))
        return await _refusal(request, response) if response.status_code >= 400 else response

    async def _send(
        self, request: httpx2.Request, exchange: Exchange, *, limit_s: float | None = None
    ) -> httpx2.Response:
        url = _without_query(request.url)
        if limit_s is not None:
            request.extensions["timeout"] = httpx2.Timeout(limit_s).as_dict()
        try:
            response = await exchange.wait_for(lambda: self._inner.handle_async_request(request))
        except (httpx2.TransportError, GivenUp) as exc:
            reason = str(exc) or type(exc).__name__
            return _stand_in(503, f"cannot reach {url}: {reason}")
        if response.status_code < 400 and (encoding := _encoding(response)) != "identity":
            # A bound on a body means nothing before it is decoded.
            await response.aclose()
            return _stand_in(
                502, f"content-encoding {encoding} from {url}, which was not asked for"
            )
        return response

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()


async def _refusal(request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
    """Keep a JSON-RPC error that comes with an HTTP one; put ours in the place of anything else."""
    status = response.status_code
    ended = status == 404 and SESSION_HEADER in request.headers
    content = b""
    try:
        if status != 401 and not ended and _is_json(response):
            content = await response.aread()
    except httpx2.StreamError:
        content = b""
    finally:
        await response.aclose()
    if ended:
        return _stand_in(status, SESSION_ENDED)
    if status == 404 or _is_rpc_error(content):
        return httpx2.Response(
            status, headers={"content-type": "application/json"}, content=content
        )
    return _stand_in(status, f"HTTP status {status} from {_without_query(request.url)}")


def _bounded(
    response: httpx2.Response,
    exchange: Exchange,
    *,
    limit: float | None = None,
    on_close: Callable[[], None] = lambda: None,
) -> httpx2.Response:
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    bound = MAX_BODY_BYTES if limit is None else limit
    response.stream = _BoundedStream(response.stream, exchange, bound, on_close)
    return response


def _is_json(response: httpx2.Response) -> bool:
    kind = str(response.headers.get("content-type", "")).lower()
    return kind.startswith("application/json") and _encoding(response) == "identity"


def _encoding(response: httpx2.Response) -> str:
    return str(response.headers.get("content-encoding", "identity"))


def _is_rpc_error(content: bytes) -> bool:
    return isinstance(_members(content).get("error"), dict)


def _message_of(request: httpx2.Request) -> JsonObject:
    return NOT_READ if len(request.content) > MAX_READ_BYTES else _members(request.content)


def _members(content: bytes) -> JsonObject:
    try:
        message = from_json(content)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}


def _without_query(url: httpx2.URL) -> httpx2.URL:
    return url.copy_with(query=None, username=None, password=None)


def _stand_in(status: int, message: str) -> httpx2.Response:
    error: dict[str, Any] = {"code": UNREACHABLE, "message": message, "data": {"status": status}}
    body = to_json({"jsonrpc": "2.0", "id": None, "error": error})
    return httpx2.Response(status, headers={"content-type": "application/json"}, content=body)


def _same_origin(one: httpx2.URL, other: httpx2.URL) -> bool:
    return (one.scheme, one.host, one.port) == (other.scheme, other.host, other.port)


def ambient_proxy(url: httpx2.URL) -> str | None:
    """Return the proxy of the environment for an address; a loopback address has none."""
    try:
        if ipaddress.ip_address(url.host).is_loopback:
            return None
    except ValueError:
        pass
    return None if proxy_bypass(url.host) else getproxies().get(url.scheme)


async def trusted_certificates() -> ssl.SSLContext:
    """Read the certificates that are trusted, once, beside the event loop: it takes some 20 ms."""
    return await anyio.to_thread.run_sync(_trusted)


@cache
def _trusted() -> ssl.SSLContext:
    return httpx2.create_ssl_context()


@asynccontextmanager
async def open_http(
    url: str, headers: Mapping[str, str], *credentials: Tokens
) -> AsyncIterator[Streams]:
    """Open the SDK's transport over a guarded client; leaving ends the session with DELETE.

    Requests carry what `credentials` give; of those with one header the first wins.

    Raises:
        httpx2.InvalidURL, ValueError: the URL makes no sense.
    """
    parsed = httpx2.URL(url)
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ValueError("its url is not an http URL")
    inner: httpx2.AsyncBaseTransport = httpx2.AsyncHTTPTransport(
        proxy=ambient_proxy(parsed),
        verify=await trusted_certificates(),
        limits=httpx2.Limits(
            max_connections=MAX_CONNECTIONS, max_keepalive_connections=MAX_IDLE_CONNECTIONS
        ),
    )
    for tokens in credentials:
        inner = AuthorizedTransport(inner, parsed, tokens)
    async with (
        httpx2.AsyncClient(
            transport=GuardedTransport(inner),
            headers={
                **headers,
                "accept-encoding": "identity",
                "user-agent": f"app-server-mcp-client/{PROTOCOL_VERSION}",
            },
            timeout=httpx2.Timeout(None, connect=CONNECT_S),
        ) as client,
        streamable_http_client(
            url, http_client=client, max_sse_event_size=MAX_BODY_BYTES
        ) as streams,
    ):
        yield streams
