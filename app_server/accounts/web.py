"""Requests to the issuer and as the account: bounded, without redirects, over private channels.

Importing this module imports httpx; nobody does before a sign-in, a refresh or a question about
the account.
"""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

import anyio

# httpx imports it with its first client, on the event loop.
import httpcore  # noqa: F401
import httpx
from pydantic_core import from_json, to_json

from app_server.accounts.errors import AccountError, BackendUnavailable, IssuerUnavailable
from app_server.accounts.issuer import require_private_channel
from app_server.http.bounded_body import read_bounded
from app_server.http.loopback_address import LOOPBACK_PATTERNS
from app_server.http.trusted import trusted_certificates
from protocol.lifecycle import PROTOCOL_VERSION
from protocol.model import JsonObject

JSON = "application/json"

MAX_BODY_BYTES = 256 * 1024
"""Bytes of one answer, decoded."""

REQUEST_S = 10.0
"""For each step of one request: connecting, writing, a piece of the answer."""

WHOLE_REQUEST_S = 30.0
"""For all of its steps."""


@dataclass(frozen=True, slots=True)
class WebAnswer:
    """What was answered."""

    status: int
    body: bytes = field(repr=False)

    @property
    def ok(self) -> bool:
        """Whether what was asked was done."""
        return 200 <= self.status < 300

    @property
    def shown_status(self) -> str:
        """Name the status for people."""
        try:
            return f"{self.status} {HTTPStatus(self.status).phrase}"
        except ValueError:
            return str(self.status)

    def parse(self) -> JsonObject:
        """Return the object in the body, an empty one if there is none."""
        try:
            body: Any = from_json(self.body)
        except ValueError:
            return {}
        return body if isinstance(body, dict) else {}


class IssuerWeb:
    """The network, as far as an issuer goes."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def post_json(self, url: str, body: JsonObject) -> WebAnswer:
        """Send a JSON document.

        Raises:
            IssuerUnavailable: nobody answered, or not in time.
            AccountError: the answer is too long, or the address is not private.
        """
        return await self._post(url, JSON, to_json(body))

    async def post_form(self, url: str, form: dict[str, str]) -> WebAnswer:
        """Send a form; raises what `post_json` does."""
        return await self._post(url, "application/x-www-form-urlencoded", urlencode(form).encode())

    async def _post(self, url: str, content_type: str, content: bytes) -> WebAnswer:
        require_private_channel(url)
        headers = {"content-type": content_type, "accept": JSON}
        with _failures("the issuer", IssuerUnavailable):
            return await _send(self._client, "POST", url, headers, content)


class HostedWeb:
    """The network, as far as the hosted backend goes."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def ask(
        self, url: str, headers: Mapping[str, str], body: JsonObject | None = None
    ) -> WebAnswer:
        """Send a document, or ask for one without `body`; `headers` say as whom.

        Raises:
            BackendUnavailable: nobody answered, or not in time.
            AccountError: the answer is too long, or the address is not private.
        """
        require_private_channel(url, "the hosted backend")
        sent = {**headers, "accept": JSON}
        content = b""
        if body is not None:
            sent["content-type"] = JSON
            content = to_json(body)
        with _failures("the hosted backend", BackendUnavailable):
            return await _send(self._client, "GET" if body is None else "POST", url, sent, content)


async def _send(
    client: httpx.AsyncClient, method: str, url: str, headers: Mapping[str, str], content: bytes
) -> WebAnswer:
    with anyio.fail_after(WHOLE_REQUEST_S):
        request = client.stream(method, url, headers=headers, content=content or None)
        async with request as response:
            body = await read_bounded(response.aiter_bytes(), MAX_BODY_BYTES, _too_large())
            return WebAnswer(response.status_code, body)


@contextmanager
def _failures(who: str, unavailable: type[AccountError]) -> Iterator[None]:
    try:
        yield
    except httpx.InvalidURL:
        raise AccountError(f"an address of {who} makes no sense") from None
    except TimeoutError:
        raise unavailable(f"{who} did not answer in time") from None
    except (httpx.TransportError, httpx.StreamError, httpx.DecodingError) as exc:
        # Its text may repeat the address with a query.
        raise unavailable(f"cannot reach {who}: {type(exc).__name__}") from None


def _too_large() -> AccountError:
    return AccountError(f"an answer is larger than {MAX_BODY_BYTES} bytes")


@asynccontextmanager
async def open_issuer_web() -> AsyncIterator[IssuerWeb]:
    """Open the network; leaving closes all connections."""
    async with await _client() as client:
        yield IssuerWeb(client)


@asynccontextmanager
async def open_hosted_web() -> AsyncIterator[HostedWeb]:
    """Open the network; leaving closes all connections."""
    async with await _client() as client:
        yield HostedWeb(client)


async def _client() -> httpx.AsyncClient:
    return httpx.AsyncClient(
        headers={"user-agent": f"app-server/{PROTOCOL_VERSION}"},
        mounts=dict.fromkeys(LOOPBACK_PATTERNS),
        verify=await trusted_certificates(),
        timeout=httpx.Timeout(REQUEST_S),
        follow_redirects=False,
    )
