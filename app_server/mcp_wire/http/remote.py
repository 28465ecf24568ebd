"""HTTP to servers elsewhere: names, encryption, and the proxy of the environment.

Source: docs/mcp.md, "Connections".
"""

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from urllib.request import getproxies, proxy_bypass

import anyio.to_thread

# httpx2 imports it with its first client, on the event loop.
import httpcore2  # noqa: F401
import httpx2

from app_server.mcp_wire.http.exchange import BodyBroken, HttpRequest, Unreachable
from app_server.runtime.http.loopback_address import is_this_machine

CONNECT_S = 15.0

MAX_CONNECTIONS = 100

MAX_IDLE_CONNECTIONS = 4
"""Kept for later requests; each request looks at all of them first, so that more cost time."""


class RemoteResponse:
    """A HttpResponse of httpx2."""

    def __init__(self, response: httpx2.Response) -> None:
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self.at_end = False
        self._pieces = response.aiter_raw()

    async def receive(self) -> bytes:
        """Return the next piece of the body; see HttpResponse."""
        try:
            while (piece := await anext(self._pieces, None)) is not None:
                if piece:
                    return piece
        except (httpx2.TransportError, httpx2.StreamError) as exc:
            raise BodyBroken(_reason(exc)) from exc
        self.at_end = True
        return b""

    async def aclose(self) -> None:
        """Give the connection back; see HttpResponse."""
        await self._response.aclose()


class RemoteSender:
    """A HttpSender over httpx2. Cookies of the server are kept and sent back."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client

    async def send(self, request: HttpRequest) -> RemoteResponse:
        """Send a request; see HttpSender."""
        # A name or a value that HTTP does not know is in the text of the error.
        try:
            outgoing = self._client.build_request(
                request.method,
                request.url,
                headers=request.headers,
                content=request.body if request.method == "POST" else None,
            )
            response = await self._client.send(outgoing, stream=True, follow_redirects=False)
        except (httpx2.LocalProtocolError, UnicodeEncodeError):
            raise Unreachable("a header is not valid HTTP") from None
        except httpx2.TransportError as exc:
            raise Unreachable(_reason(exc)) from exc
        return RemoteResponse(response)


@asynccontextmanager
async def open_remote(url: httpx2.URL) -> AsyncIterator[RemoteSender]:
    """Open a sender for the origin of a URL; leaving closes its connections."""
    async with httpx2.AsyncClient(
        transport=httpx2.AsyncHTTPTransport(
            proxy=ambient_proxy(url),
            verify=await trusted_certificates(),
            limits=httpx2.Limits(
                max_connections=MAX_CONNECTIONS, max_keepalive_connections=MAX_IDLE_CONNECTIONS
            ),
        ),
        timeout=httpx2.Timeout(None, connect=CONNECT_S),
    ) as client:
        yield RemoteSender(client)


def ambient_proxy(url: httpx2.URL) -> str | None:
    """Return the proxy of the environment for an address; this machine has none."""
    if is_this_machine(url.host) or proxy_bypass(url.host):
        return None
    return getproxies().get(url.scheme)


async def trusted_certificates() -> ssl.SSLContext:
    """Read the certificates that are trusted, once, beside the event loop: it takes some 20 ms."""
    return await anyio.to_thread.run_sync(_trusted)


@cache
def _trusted() -> ssl.SSLContext:
    return httpx2.create_ssl_context()


def _reason(exc: Exception) -> str:
    return str(exc) or type(exc).__name__
