"""Requests to servers that hand out tokens: bounded, and only to places we may be sent to.

Addresses come from other machines here. One that is named must be https, unless it has the origin
of the MCP server, or both are on this machine; a server elsewhere never sends us to this machine.
Source: docs/mcp.md, "Sign-in".
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

# httpx2 imports it with its first client, on the event loop.
import httpcore2  # noqa: F401
import httpx2

from app_server.mcp.errors import OAuthFailed, OAuthUnavailable
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
async def open_web(
    server_url: str,
    headers: Mapping[str, str],
    transport: httpx2.AsyncBaseTransport | None = None,
) -> AsyncIterator[Web]:
    """Open the network for an MCP server; leaving closes all connections.

    `transport` is the way to it, if that is not this machine's own.

    Raises:
        OAuthFailed: the URL makes no sense.
    """
    try:
        web_url = httpx2.URL(server_url)
    except httpx2.InvalidURL:
        raise OAuthFailed("the server's URL makes no sense") from None
    async with httpx2.AsyncClient(
        transport=transport or _ByTarget(),
        headers={"user-agent": USER_AGENT},
        timeout=httpx2.Timeout(REQUEST_S),
        follow_redirects=False,
    ) as client:
        yield Web(client, str(web_url), headers)
