"""HTTP requests over connections that another machine makes, for the client that signs in.

Source: docs/environments.md, "Servers in an environment".
"""

import ssl
from collections.abc import AsyncIterator

import anyio
import httpx2

from app_server.mcp_wire.http.exchange import BodyBroken, HttpRequest, HttpResponse, Unreachable
from app_server.mcp_wire.http.loopback import Dial, LoopbackSender
from app_server.mcp_wire.http.remote import trusted_certificates

FRAMING = frozenset(("connection", "content-length", "transfer-encoding"))
"""Headers that are the sender's."""


class DialledTransport(httpx2.AsyncBaseTransport):
    """Sends requests to any origin; each has connections of its own. No proxy is used."""

    def __init__(self, dial: Dial, step_s: float) -> None:
        """Wait `step_s` for the head of a response, and for each piece of its body."""
        self._dial = dial
        self._step_s = step_s
        self._senders: dict[tuple[str, bytes], LoopbackSender] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request, and wait for the head of its response."""
        body = await request.aread()
        headers = {name: text for name, text in request.headers.items() if name not in FRAMING}
        sender = await self._sender(request.url)
        try:
            with anyio.fail_after(self._step_s):
                response = await sender.send(
                    HttpRequest(request.method, request.url, headers, body)
                )
        except Unreachable as exc:
            raise httpx2.ConnectError(str(exc), request=request) from exc
        except TimeoutError as exc:
            raise httpx2.ReadTimeout("no response", request=request) from exc
        return httpx2.Response(
            response.status,
            headers=dict(response.headers),
            stream=_Body(response, self._step_s),
            request=request,
        )

    async def aclose(self) -> None:
        """Close all connections."""
        for sender in self._senders.values():
            sender.close()

    async def _sender(self, url: httpx2.URL) -> LoopbackSender:
        origin = url.scheme, url.netloc
        if origin not in self._senders:
            tls: ssl.SSLContext | None = None
            if url.scheme == "https":
                tls = await trusted_certificates()
            self._senders[origin] = LoopbackSender(url, self._dial, tls)
        return self._senders[origin]


class _Body(httpx2.AsyncByteStream):
    def __init__(self, response: HttpResponse, step_s: float) -> None:
        self._response = response
        self._step_s = step_s

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while piece := await self._receive():
            yield piece

    async def _receive(self) -> bytes:
        try:
            with anyio.fail_after(self._step_s):
                return await self._response.receive()
        except BodyBroken as exc:
            raise httpx2.ReadError(str(exc)) from exc
        except TimeoutError as exc:
            raise httpx2.ReadTimeout("the response does not go on") from exc

    async def aclose(self) -> None:
        await self._response.aclose()
