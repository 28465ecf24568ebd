"""Plain requests to ChatGPT's own interface, which the hosted endpoint stands beside.

Source: docs/apps.md, "The backend".
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias
from urllib.parse import urlsplit

import anyio
import anyio.to_thread

# httpx imports it with its first client, on the event loop.
import httpcore  # noqa: F401
import httpx
from pydantic import SecretStr
from pydantic_core import from_json

from app_server.apps.account import AppsUnavailable, AuthPort
from app_server.apps.inventory.cache import CacheIdentity
from app_server.apps.upstream.bearer import Bearer, send_signed
from app_server.mcp_wire.errors import NoCredential
from app_server.mcp_wire.http.authorized import CredentialSource
from app_server.runtime.http.bounded_body import read_bounded
from app_server.runtime.http.loopback_address import is_this_machine
from app_server.runtime.http.trusted import trusted_certificates
from protocol.model import Json, JsonObject
from protocol.server.lifecycle import PROTOCOL_VERSION

Owner: TypeAlias = tuple[str, CacheIdentity, str | None]
"""Whom an answer was for: address, account, product."""


class BackendFailed(AppsUnavailable):
    """There is no answer that can be used; the text has no address in it."""


class AnswerTooLarge(BackendFailed):
    """The answer is above the bound."""


@dataclass(frozen=True, slots=True)
class Account:
    """A ChatGPT account."""

    identity: CacheIdentity
    headers: Mapping[str, SecretStr] = field(repr=False)
    """Of every request on its behalf."""
    tokens: CredentialSource | None = field(default=None, repr=False, compare=False)
    """The source of bearer tokens, unless the headers hold one."""


def account_of(auth: AuthPort) -> Account | None:
    """Return the ChatGPT account that is signed in; None without one."""
    state = auth.current()
    who = state.credentials
    if who is None or not who.is_chatgpt:
        return None
    headers: dict[str, SecretStr] = {}
    if who.account_id is not None:
        headers["chatgpt-account-id"] = SecretStr(who.account_id)
    identity = CacheIdentity(who.account_id, who.chatgpt_user_id, who.is_workspace)
    return Account(identity, headers, Bearer(auth, state.revision))


@dataclass(frozen=True, slots=True)
class Backend:
    """ChatGPT's interface, as one account sees it for one product."""

    base_url: str
    """As it is configured."""
    account: Account
    sku: str | None = None

    @property
    def api(self) -> str:
        """The base URL of the paths, without a slash at its end."""
        return self.base_url.rstrip("/")

    @property
    def owner(self) -> Owner | None:
        """The cache key of answers; None while the account is unknown, and no answer is cached."""
        identity = self.account.identity
        return (self.api, identity, self.sku) if identity.is_known else None

    @asynccontextmanager
    async def open(self) -> AsyncIterator["Conversation"]:
        """Keep connections while the context lasts."""
        # Every request has a deadline of its own, below.
        async with open_web(self.api, None) as http:
            yield Conversation(http, self)


class Conversation:
    """Requests to one backend."""

    def __init__(self, http: httpx.AsyncClient, backend: Backend) -> None:
        self._http = http
        self._backend = backend
        self.read_bytes = 0
        """Of all bodies so far."""

    async def get(
        self, path: str, query: Mapping[str, str], *, timeout_s: float, limit_bytes: int
    ) -> JsonObject:
        """Ask for a JSON object of at most `limit_bytes`, all within `timeout_s`.

        Raises:
            BackendFailed
        """
        build = partial(self._http.build_request, "GET", self._url(path), params=query)
        return await self._ask(build, timeout_s, limit_bytes)

    async def post(
        self,
        path: str,
        body: Json,
        headers: Mapping[str, str],
        *,
        timeout_s: float,
        limit_bytes: int,
    ) -> JsonObject:
        """Send JSON, and read the answer as `get` does.

        Raises:
            BackendFailed
        """
        build = partial(self._http.build_request, "POST", self._url(path), json=body)
        return await self._ask(build, timeout_s, limit_bytes, headers)

    def _url(self, path: str) -> httpx.URL:
        try:
            return httpx.URL(f"{self._backend.api}/{path}")
        except httpx.InvalidURL:
            raise BackendFailed("chatgpt_base_url is not a URL") from None

    async def _ask(
        self,
        build: Callable[..., httpx.Request],
        timeout_s: float,
        limit_bytes: int,
        headers: Mapping[str, str] | None = None,
    ) -> JsonObject:
        account = self._backend.account
        shared = {name: value.get_secret_value() for name, value in account.headers.items()}

        async def send(signed: Mapping[str, str]) -> httpx.Response:
            request = build(headers={**(headers or {}), **shared, **signed})
            return await self._http.send(request, stream=True)

        try:
            with anyio.fail_after(timeout_s):
                response = await send_signed(account.tokens, send)
                content = await self._read(response, limit_bytes)
        except TimeoutError:
            raise BackendFailed(f"no answer within {timeout_s:g} s") from None
        except NoCredential as exc:
            raise BackendFailed(str(exc)) from None
        except (httpx.TransportError, httpx.StreamError, httpx.DecodingError) as exc:
            # What it says may have the address in it.
            raise BackendFailed(f"ChatGPT cannot be reached: {type(exc).__name__}") from None
        self.read_bytes += len(content)
        return await anyio.to_thread.run_sync(_parse, content)

    async def _read(self, response: httpx.Response, limit_bytes: int) -> bytes:
        try:
            if not response.is_success:
                raise BackendFailed(f"HTTP status {response.status_code}")
            too_large = AnswerTooLarge(f"an answer above {limit_bytes} bytes")
            return await read_bounded(response.aiter_bytes(), limit_bytes, too_large)
        finally:
            await response.aclose()


def _parse(content: bytes) -> JsonObject:
    try:
        answer: Json = from_json(content)
    except ValueError:
        # What the parser says may quote the answer.
        answer = None
    if not isinstance(answer, dict):
        raise BackendFailed("an answer that is not a JSON object")
    return answer


@asynccontextmanager
async def open_web(url: str, timeout_s: float | None) -> AsyncIterator[httpx.AsyncClient]:
    """Open a client for requests of this package that are not MCP, while the context lasts.

    An ambient proxy never sees loopback traffic.

    `timeout_s` is for each step of a request; None leaves deadlines to the caller.
    """
    async with httpx.AsyncClient(
        headers={"user-agent": f"app-server/{PROTOCOL_VERSION}"},
        timeout=timeout_s,
        trust_env=not is_this_machine(urlsplit(url).hostname),
        verify=await trusted_certificates(),
    ) as http:
        yield http
