"""Credentials that are had at the time: a sign-in's tokens, headers that a command prints.

Source: docs/mcp.md, "Sign-in"; docs/config.md, "MCP servers".
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from app_server.mcp_wire.errors import NoCredential
from app_server.mcp_wire.http.exchange import HttpRequest, HttpResponse, HttpSender, Unreachable
from app_server.mcp_wire.http.redirects import Origin, origin_of
from app_server.mcp_wire.http.refusals import scopes_wanted


class CredentialSource(Protocol):
    """A source of bearer tokens, or of other credentials of requests."""

    async def current(self) -> str | None:
        """Return the token to send, None without one."""

    async def replace(self, refused: str | None) -> str | None:
        """Return another one than was refused, None when there is none."""

    async def widen(self, refused: str | None, scopes: Sequence[str]) -> str | None:
        """Note scopes that a token lacks; return one of a later sign-in, None without one."""

    def stored(self) -> str | None:
        """Return the token that was used last, without renewing it."""

    def headers(self, credential: str) -> Mapping[str, str]:
        """Return the headers of a request that a token makes, names in lower case."""


class AuthorizedSender:
    """Sends a token with every request to one origin, and another one after a refusal."""

    def __init__(self, inner: HttpSender, origin: Origin, tokens: CredentialSource) -> None:
        self._inner = inner
        self._origin = origin
        self._tokens = tokens

    async def send(self, request: HttpRequest) -> HttpResponse:
        """Send a request; see HttpSender. A token that cannot be had now makes it Unreachable."""
        if origin_of(request.url) != self._origin:
            return await self._inner.send(request)
        if request.method == "DELETE":
            # The end of a session is not worth a new token.
            return await self._send(request, self._tokens.stored())
        try:
            token = await self._tokens.current()
            response = await self._send(request, token)
            if response.status != 401 and not scopes_wanted(response):
                return response
            other = await self._token_after(response, token)
        except NoCredential as exc:
            raise Unreachable(str(exc)) from None
        if other is None or other == token:
            return response
        await response.aclose()
        return await self._send(request, other)

    async def _token_after(self, refusal: HttpResponse, token: str | None) -> str | None:
        try:
            if scopes := scopes_wanted(refusal):
                return await self._tokens.widen(token, scopes)
            return await self._tokens.replace(token)
        except BaseException:
            await refusal.aclose()
            raise

    async def _send(self, request: HttpRequest, token: str | None) -> HttpResponse:
        if token is not None:
            headers = {**request.headers, **self._tokens.headers(token)}
            request = replace(request, headers=headers)
        return await self._inner.send(request)
