"""Requests to the issuer: bounded, without redirects, and over private channels only.

Importing this module imports httpx; nobody does before a sign-in or a refresh.
"""

from collections.abc import AsyncIterator
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

from app_server.accounts.errors import AccountError, IssuerUnavailable
from app_server.accounts.issuer import require_private_channel
from app_server.http.bounded_body import read_bounded
from app_server.http.loopback_address import LOOPBACK_PATTERNS
from app_server.http.trusted import trusted_certificates
from protocol.lifecycle import PROTOCOL_VERSION
from protocol.model import JsonObject

MAX_BODY_BYTES = 256 * 1024
"""Bytes of one answer, decoded."""

REQUEST_S = 10.0
"""For each step of one request: connecting, writing, a piece of the answer."""

WHOLE_REQUEST_S = 30.0
"""For all of its steps."""


@dataclass(frozen=True, slots=True)
class IssuerAnswer:
    """What the issuer answered."""

    status: int
    body: bytes = field(repr=False)

    @property
    def ok(self) -> bool:
        """Whether it did what it was asked."""
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

    async def post_json(self, url: str, body: JsonObject) -> IssuerAnswer:
        """Send a JSON document.

        Raises:
            IssuerUnavailable: nobody answered, or not in time.
            AccountError: the answer is too long, or the address is not private.
        """
        return await self._post(url, "application/json", to_json(body))

    async def post_form(self, url: str, form: dict[str, str]) -> IssuerAnswer:
        """Send a form; raises what `post_json` does."""
        return await self._post(url, "application/x-www-form-urlencoded", urlencode(form).encode())

    async def _post(self, url: str, content_type: str, content: bytes) -> IssuerAnswer:
        require_private_channel(url)
        headers = {"content-type": content_type, "accept": "application/json"}
        try:
            with anyio.fail_after(WHOLE_REQUEST_S):
                request = self._client.stream("POST", url, headers=headers, content=content)
                async with request as response:
                    body = await read_bounded(response.aiter_bytes(), MAX_BODY_BYTES, _too_large())
                    return IssuerAnswer(response.status_code, body)
        except httpx.InvalidURL:
            raise AccountError("an address of the issuer makes no sense") from None
        except TimeoutError:
            raise IssuerUnavailable("the issuer did not answer in time") from None
        except (httpx.TransportError, httpx.StreamError, httpx.DecodingError) as exc:
            # Its text may repeat the address with a query.
            raise IssuerUnavailable(f"cannot reach the issuer: {type(exc).__name__}") from None


def _too_large() -> AccountError:
    return AccountError(f"an answer is larger than {MAX_BODY_BYTES} bytes")


@asynccontextmanager
async def open_issuer_web() -> AsyncIterator[IssuerWeb]:
    """Open the network; leaving closes all connections."""
    async with httpx.AsyncClient(
        headers={"user-agent": f"app-server/{PROTOCOL_VERSION}"},
        mounts=dict.fromkeys(LOOPBACK_PATTERNS),
        verify=await trusted_certificates(),
        timeout=httpx.Timeout(REQUEST_S),
        follow_redirects=False,
    ) as client:
        yield IssuerWeb(client)
