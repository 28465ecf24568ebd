"""An MCP server behind a URL: Streamable HTTP, with what the SDK's transport leaves open closed.

A transport error would end the SDK's whole connection: here it becomes the answer to the one
request that met it. Bodies are bounded. An ambient proxy never sees loopback traffic. Redirects are
the SDK's rule: same origin, same method.
Source: MCP 2025-06-18, "Transports"; docs/mcp.md, "Connections".
"""

import ipaddress
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeAlias
from urllib.request import getproxies, proxy_bypass

import httpx2
from mcp.client.streamable_http import streamable_http_client
from pydantic_core import to_json

from protocol.lifecycle import PROTOCOL_VERSION

Streams: TypeAlias = tuple[Any, Any]
"""What the SDK's transports give: a stream of messages in, and one out."""

MAX_BODY_BYTES = 64 * 1024 * 1024
"""Bytes of one response to a POST, decoded; the request it answers fails above it."""

CONNECT_S = 15.0

GOODBYE_S = 2.0
"""For the DELETE that ends a session."""

UNREACHABLE = -32000
"""Code of the error that stands for a response we did not get."""


class BodyTooLarge(httpx2.StreamError):
    """A response passed its bound."""


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream, limit: int) -> None:
        self._inner = inner
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = self._limit
        async for chunk in self._inner:
            left -= len(chunk)
            if left < 0:
                raise BodyTooLarge(f"the response is larger than {self._limit} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Contains failures: every request gets a response, and no response is endless."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; what goes wrong comes back as a JSON-RPC error."""
        if request.method == "DELETE":
            request.extensions["timeout"] = httpx2.Timeout(GOODBYE_S).as_dict()
        try:
            response = await self._inner.handle_async_request(request)
        except httpx2.TransportError as exc:
            reason = str(exc) or type(exc).__name__
            return _stand_in(503, f"cannot reach {_without_query(request.url)}: {reason}")
        status = response.status_code
        # 404 is left to the SDK: with a session it means that the session has ended.
        if request.method == "POST":
            if status >= 400 and status != 404 and not _is_json(response):
                await response.aclose()
                return _stand_in(status, f"HTTP status {status} from {_without_query(request.url)}")
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _BoundedStream(response.stream, MAX_BODY_BYTES)
        return response

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()


def _is_json(response: httpx2.Response) -> bool:
    return str(response.headers.get("content-type", "")).lower().startswith("application/json")


def _without_query(url: httpx2.URL) -> httpx2.URL:
    return url.copy_with(query=None, username=None, password=None)


def _stand_in(status: int, message: str) -> httpx2.Response:
    error: dict[str, Any] = {"code": UNREACHABLE, "message": message, "data": {"status": status}}
    body = to_json({"jsonrpc": "2.0", "id": None, "error": error})
    return httpx2.Response(status, headers={"content-type": "application/json"}, content=body)


def _ambient_proxy(url: httpx2.URL) -> str | None:
    try:
        if ipaddress.ip_address(url.host).is_loopback:
            return None
    except ValueError:
        pass
    return None if proxy_bypass(url.host) else getproxies().get(url.scheme)


@asynccontextmanager
async def open_http(url: str, headers: Mapping[str, str]) -> AsyncIterator[Streams]:
    """Open the SDK's transport over a guarded client; leaving ends the session with DELETE.

    Raises:
        httpx2.InvalidURL, ValueError: the URL makes no sense.
    """
    parsed = httpx2.URL(url)
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ValueError("its url is not an http URL")
    inner = httpx2.AsyncHTTPTransport(proxy=_ambient_proxy(parsed))
    async with (
        httpx2.AsyncClient(
            transport=GuardedTransport(inner),
            headers={**headers, "user-agent": f"app-server-mcp-client/{PROTOCOL_VERSION}"},
            timeout=httpx2.Timeout(None, connect=CONNECT_S),
        ) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=None) as streams,
    ):
        yield streams
