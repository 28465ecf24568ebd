"""Requests to servers that hand out tokens: bounded, and only to places we may be sent to.

Addresses come from other machines here. One that is named must be https, unless it has the origin
of the MCP server, or both are on this machine; a server elsewhere never sends us to this machine.
Source: docs/mcp.md, "Sign-in"; docs/environments.md, "Servers in an environment".
"""

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import anyio

# httpx2 imports it with its first client, on the event loop.
import httpcore2  # noqa: F401
import httpx2

from app_server.mcp.catalog.config import LOCAL
from app_server.mcp.errors import OAuthFailed, OAuthUnavailable
from app_server.mcp.oauth.target import SignInTarget
from app_server.mcp.tunnel import open_dial
from app_server.mcp_wire.http.exchange import BodyBroken, HttpRequest, HttpResponse, Unreachable
from app_server.mcp_wire.http.loopback import Dial, LoopbackSender
from app_server.mcp_wire.http.redirects import origin_of, shown
from app_server.mcp_wire.http.remote import ambient_proxy, trusted_certificates
from app_server.runtime.http.bounded_body import read_bounded
from app_server.runtime.http.loopback_address import is_this_machine
from protocol.server.lifecycle import PROTOCOL_VERSION

MAX_BODY_BYTES = 256 * 1024
"""Bytes of one answer, decoded; a longer one counts as no answer."""

REQUEST_S = 10.0
"""For each step of one request: connecting, writing, a piece of the answer."""

MAX_REDIRECTS = 2

FRAMING = frozenset(("connection", "content-length", "transfer-encoding"))
"""Headers that are the sender's."""

USER_AGENT = f"app-server-mcp-client/{PROTOCOL_VERSION}"


@dataclass(frozen=True, slots=True)
class WebAnswer:
    """An HTTP response with its body read."""

    status: int
    headers: httpx2.Headers = field(repr=False)
    body: bytes = field(default=b"", repr=False)


class _ByTarget(httpx2.AsyncBaseTransport):
    """Goes through the ambient proxy of each target, and to loopback addresses never."""

    def __init__(self) -> None:
        self._by_proxy: dict[str | None, httpx2.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        proxy = ambient_proxy(request.url)
        if proxy not in self._by_proxy:
            trusted = await trusted_certificates()
            self._by_proxy[proxy] = httpx2.AsyncHTTPTransport(proxy=proxy, verify=trusted)
        return await self._by_proxy[proxy].handle_async_request(request)

    async def aclose(self) -> None:
        for transport in self._by_proxy.values():
            await transport.aclose()


class DialledTransport(httpx2.AsyncBaseTransport):
    """Sends requests over connections that another machine makes; no proxy is used."""

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
            stream=_DialledBody(response, self._step_s),
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


class _DialledBody(httpx2.AsyncByteStream):
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


class Web:
    """The network, as seen on behalf of one MCP server."""

    def __init__(
        self, client: httpx2.AsyncClient, server_url: str, headers: Mapping[str, str]
    ) -> None:
        """`headers` are those configured for the server; they go to its origin alone."""
        self._client = client
        self._server = httpx2.URL(server_url)
        self._headers = headers

    def may_visit(self, url: str) -> bool:
        """Whether the server may send us to an address."""
        try:
            target = httpx2.URL(url)
        except httpx2.InvalidURL:
            return False
        if target.scheme not in ("http", "https") or not target.host:
            return False
        if origin_of(target) == origin_of(self._server):
            return True
        if is_this_machine(target.host):
            return is_this_machine(self._server.host)
        return target.scheme == "https"

    async def probe(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes | None = None
    ) -> WebAnswer:
        """Send a request without reading the answer's body, which may have no end.

        Raises:
            OAuthUnavailable, OAuthFailed: see `post`.
        """
        return await self._ask(method, url, headers, None, content)

    async def get(self, url: str, headers: Mapping[str, str]) -> WebAnswer:
        """Fetch a document; redirects are followed within its origin.

        Raises:
            OAuthUnavailable, OAuthFailed: see `post`.
        """
        return await self._ask("GET", url, headers, MAX_BODY_BYTES)

    async def post(self, url: str, headers: Mapping[str, str], content: bytes) -> WebAnswer:
        """Send a document and return the answer, whatever its status.

        Raises:
            OAuthUnavailable: nobody answered, or not in time.
            OAuthFailed: we may not be sent there, or the answer is too long.
        """
        return await self._ask("POST", url, headers, MAX_BODY_BYTES, content)

    async def _ask(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        limit: int | None,
        content: bytes | None = None,
    ) -> WebAnswer:
        if not self.may_visit(url):
            raise OAuthFailed("an address that the server names is not allowed")
        target = httpx2.URL(url)
        own = self._headers if origin_of(target) == origin_of(self._server) else {}
        request = self._client.build_request(
            method, target, headers={**own, **headers}, content=content
        )
        try:
            for _ in range(MAX_REDIRECTS + 1):
                answer, following = await self._send(request, limit)
                if following is None or method != "GET":
                    break
                if origin_of(following.url) != origin_of(request.url):
                    break
                request = following
        except httpx2.TransportError as exc:
            raise OAuthUnavailable(f"cannot reach {shown(target)}: {type(exc).__name__}") from None
        return answer

    async def _send(
        self, request: httpx2.Request, limit: int | None
    ) -> tuple[WebAnswer, httpx2.Request | None]:
        response = await self._client.send(request, stream=True)
        try:
            body = b""
            if limit is not None and not response.has_redirect_location:
                too_large = OAuthFailed(f"an answer is larger than {limit} bytes")
                body = await read_bounded(response.aiter_bytes(), limit, too_large)
            return WebAnswer(response.status_code, response.headers, body), response.next_request
        finally:
            await response.aclose()


@asynccontextmanager
async def open_web(target: SignInTarget) -> AsyncIterator[Web]:
    """Open the network as a server sees it; leaving closes all connections.

    Raises:
        OAuthFailed: its URL makes no sense.
        OAuthUnavailable: its environment is not known.
        ServerUnavailable: a variable with a header is not set.
    """
    headers, processes = target.transport.headers(target.name), target.processes
    async with AsyncExitStack() as stack:
        transport: httpx2.AsyncBaseTransport = _ByTarget()
        if target.environment_id != LOCAL:
            if processes is None or not processes.has(target.environment_id):
                raise OAuthUnavailable(f"unknown environment `{target.environment_id}`")
            dial = await stack.enter_async_context(open_dial(processes, target.environment_id))
            transport = DialledTransport(dial, REQUEST_S)
        try:
            server_url = httpx2.URL(target.transport.url)
        except httpx2.InvalidURL:
            raise OAuthFailed("the server's URL makes no sense") from None
        client = httpx2.AsyncClient(
            transport=transport,
            headers={"user-agent": USER_AGENT},
            timeout=httpx2.Timeout(REQUEST_S),
            follow_redirects=False,
        )
        yield Web(await stack.enter_async_context(client), str(server_url), headers)
