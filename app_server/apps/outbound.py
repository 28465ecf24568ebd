"""Plain requests to ChatGPT's own interface, which the hosted endpoint stands beside.

Source: docs/apps.md, "The backend".
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

import anyio
import anyio.to_thread
import httpx
from pydantic import SecretStr
from pydantic_core import from_json

from app_server.apps.account import AuthPort
from app_server.apps.cache import CacheIdentity
from app_server.apps.errors import AppsUnavailable
from app_server.apps.web import open_web
from protocol.model import Json, JsonObject

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


def account_of(auth: AuthPort) -> Account | None:
    """Return the ChatGPT account that is signed in; None without one."""
    who = auth.current().credentials
    if who is None or not who.is_chatgpt:
        return None
    headers = {"authorization": SecretStr(f"Bearer {who.token}")}
    if who.account_id is not None:
        headers["chatgpt-account-id"] = SecretStr(who.account_id)
    identity = CacheIdentity(who.account_id, who.chatgpt_user_id, who.is_workspace)
    return Account(identity, headers)


@dataclass(frozen=True, slots=True)
class Backend:
    """ChatGPT's interface, as one account sees it for one product."""

    base_url: str
    """As it is configured."""
    account: Account
    sku: str | None = None

    @property
    def api(self) -> str:
        """Where paths begin."""
        return self.base_url.rstrip("/")

    @property
    def owner(self) -> Owner | None:
        """Whose answers they are; None when nobody can tell, and nothing may be kept."""
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
        request = self._http.build_request("GET", self._url(path), params=query)
        return await self._ask(request, timeout_s, limit_bytes)

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
        request = self._http.build_request("POST", self._url(path), json=body, headers=headers)
        return await self._ask(request, timeout_s, limit_bytes)

    def _url(self, path: str) -> httpx.URL:
        try:
            return httpx.URL(f"{self._backend.api}/{path}")
        except httpx.InvalidURL:
            raise BackendFailed("chatgpt_base_url is not a URL") from None

    async def _ask(self, request: httpx.Request, timeout_s: float, limit_bytes: int) -> JsonObject:
        for name, value in self._backend.account.headers.items():
            request.headers[name] = value.get_secret_value()
        try:
            with anyio.fail_after(timeout_s):
                content = await self._read(request, limit_bytes)
        except TimeoutError:
            raise BackendFailed(f"no answer within {timeout_s:g} s") from None
        except (httpx.TransportError, httpx.StreamError, httpx.DecodingError) as exc:
            # What it says may have the address in it.
            raise BackendFailed(f"ChatGPT cannot be reached: {type(exc).__name__}") from None
        self.read_bytes += len(content)
        return await anyio.to_thread.run_sync(_parse, content)

    async def _read(self, request: httpx.Request, limit_bytes: int) -> bytes:
        response = await self._http.send(request, stream=True)
        try:
            if not response.is_success:
                raise BackendFailed(f"HTTP status {response.status_code}")
            content = bytearray()
            async for chunk in response.aiter_bytes():
                content += chunk
                if len(content) > limit_bytes:
                    raise AnswerTooLarge(f"an answer above {limit_bytes} bytes")
            return bytes(content)
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
