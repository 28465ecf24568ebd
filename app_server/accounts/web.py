"""Requests to the issuer and as the account: bounded, without redirects, over private channels.

Importing this module imports httpx; nobody does before a sign-in, a refresh or a question about
the account.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

import anyio

# httpx imports it with its first client, on the event loop.
import httpcore  # noqa: F401
import httpx
from pydantic_core import from_json, to_json

from app_server.accounts.account_errors import AccountError, BackendUnavailable, IssuerUnavailable
from app_server.accounts.issuer import require_private_channel
from app_server.runtime.http.bounded_body import read_bounded
from app_server.runtime.http.loopback_address import LOOPBACK_PATTERNS
from app_server.runtime.http.trusted import trusted_certificates
from protocol.model import JsonObject
from protocol.server.lifecycle import PROTOCOL_VERSION

JSON = "application/json"

MAX_BODY_BYTES = 256 * 1024
"""Bytes of one answer, decoded."""

REQUEST_S = 10.0
"""For each step of one request: connecting, writing, a piece of the answer."""

WHOLE_REQUEST_S = 30.0
"""For all of its steps."""


@dataclass(frozen=True, slots=True)
class WebAnswer:
    """Answer to an HTTP request."""

    status: int
    body: bytes = field(repr=False)

    @property
    def ok(self) -> bool:
        """Whether the request succeeded."""
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


@dataclass(frozen=True, slots=True)
class AccountWeb:
    """The network, as far as the issuer or the hosted backend goes."""

    client: httpx.AsyncClient
    who: str
    """As errors name it."""
    unavailable: type[AccountError]
    request_s: float = field(default=WHOLE_REQUEST_S, kw_only=True)
    """Seconds for a request, with all of its answer."""

    async def ask(
        self, url: str, body: JsonObject | None = None, headers: Mapping[str, str] | None = None
    ) -> WebAnswer:
        """Send a JSON document, or ask for one without `body`; `headers` may say as whom.

        Raises:
            IssuerUnavailable, BackendUnavailable: nobody answered, or not in time.
            AccountError: the answer is too long, or the address is not private.
        """
        return await self._send(url, headers or {}, JSON, b"" if body is None else to_json(body))

    async def post_form(self, url: str, form: dict[str, str]) -> WebAnswer:
        """Send a form; raises as `ask` does."""
        content = urlencode(form).encode()
        return await self._send(url, {}, "application/x-www-form-urlencoded", content)

    async def _send(
        self, url: str, headers: Mapping[str, str], content_type: str, content: bytes
    ) -> WebAnswer:
        require_private_channel(url, self.who)
        sent = {**headers, "accept": JSON} | ({"content-type": content_type} if content else {})
        method = "POST" if content else "GET"
        too_large = AccountError(f"an answer is larger than {MAX_BODY_BYTES} bytes")
        try:
            with anyio.fail_after(self.request_s):
                request = self.client.stream(method, url, headers=sent, content=content or None)
                async with request as response:
                    body = await read_bounded(response.aiter_bytes(), MAX_BODY_BYTES, too_large)
                    return WebAnswer(response.status_code, body)
        except httpx.InvalidURL:
            raise AccountError(f"an address of {self.who} makes no sense") from None
        except TimeoutError:
            raise self.unavailable(f"{self.who} did not answer in time") from None
        except (httpx.TransportError, httpx.StreamError, httpx.DecodingError) as exc:
            # Its text may repeat the address with a query.
            raise self.unavailable(f"cannot reach {self.who}: {type(exc).__name__}") from None


@asynccontextmanager
async def open_issuer_web() -> AsyncIterator[AccountWeb]:
    """Open the network; leaving closes all connections."""
    async with await _client() as client:
        yield AccountWeb(client, "the issuer", IssuerUnavailable)


@asynccontextmanager
async def open_hosted_web() -> AsyncIterator[AccountWeb]:
    """Open the network; leaving closes all connections."""
    async with await _client() as client:
        yield AccountWeb(client, "the hosted backend", BackendUnavailable)


async def _client() -> httpx.AsyncClient:
    return httpx.AsyncClient(
        headers={"user-agent": f"app-server/{PROTOCOL_VERSION}"},
        mounts=dict.fromkeys(LOOPBACK_PATTERNS),
        verify=await trusted_certificates(),
        timeout=httpx.Timeout(REQUEST_S),
        follow_redirects=False,
    )
