"""The token that a connection sends, kept fresh.

Refreshing is serialised by a lock file: two holders of one refresh token would make it worthless,
as authorization servers take it for stolen when it comes twice.
Source: OAuth 2.1, section 4.3; docs/mcp.md, "Sign-in".
"""

from collections import deque
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from app_server.mcp.errors import GrantRefused, OAuthFailed, OAuthUnavailable
from app_server.mcp.oauth.credentials import (
    Credential,
    CredentialStore,
    OAuthClient,
    store_failures,
)
from app_server.mcp.oauth.loading import find_authorization_server, load_discovery
from app_server.mcp.oauth.target import SignInTarget
from app_server.mcp.oauth.web import open_web
from app_server.runtime.clock import SystemClock
from app_server.runtime.files.secret import lock_awaited

if TYPE_CHECKING:
    from mcp.shared.auth import OAuthToken

EARLY_MS = 30_000
"""A token is refreshed when it has this long to live."""

MAX_WANTED = 64
"""Scopes that are noted for the next sign-in."""

REFRESH_S = 30.0
"""For a refresh, with the wait for its lock."""

ANSWER_S = 10.0
"""Seconds to wait for the answer to a refresh; a cancelled caller does not end the wait."""


class TokenSource:
    """The stored token of one server, for one connection."""

    def __init__(
        self,
        target: SignInTarget,
        store: CredentialStore,
        values: deque[Collection[str]],
    ) -> None:
        """Each token that is sent is added to `values` once."""
        self._values = values
        self._target = target
        self._store = store
        self._now_ms = SystemClock().now_ms
        self._credential: Credential | None = None
        self._loaded = False

    @property
    def had_credential(self) -> bool:
        """Whether there is, or was, a sign-in to this server."""
        return self._credential is not None

    async def current(self) -> str | None:
        """Return the token to send, refreshed if it is about to expire; None without one.

        Raises:
            OAuthUnavailable: it has expired, and the authorization server does not answer.
            OAuthFailed: the store cannot be used.
        """
        if not self._loaded:
            self._credential = await self._load()
            self._loaded = True
        credential, now_ms = self._credential, self._now_ms()
        if credential is None:
            return None
        if not credential.expires_within(now_ms, EARLY_MS):
            return credential.access_token
        try:
            return await self._refresh(credential.access_token, refused=False)
        except OAuthUnavailable:
            if credential.expires_within(self._now_ms(), 0):
                raise
            return credential.access_token

    def stored(self) -> str | None:
        """Return the token that was used last, without renewing it."""
        return None if self._credential is None else self._credential.access_token

    def headers(self, credential: str) -> dict[str, str]:
        """Return the header that a token is sent in."""
        if (credential,) not in self._values:
            self._values.append((credential,))
        return {"authorization": f"Bearer {credential}"}

    async def replace(self, refused: str | None) -> str | None:
        """Return another token than the one that was refused; None when there is none.

        Raises:
            OAuthUnavailable, OAuthFailed: see `current`.
        """
        if refused is None:
            self._credential = await self._load()
            return await self.current()
        return await self._refresh(refused, refused=True)

    async def widen(self, refused: str | None, scopes: Sequence[str]) -> str | None:
        """Note scopes for the next sign-in; return its token if there has been one since.

        At most MAX_WANTED are noted.

        Raises:
            OAuthUnavailable, OAuthFailed: see `current`.
        """
        try:
            with anyio.fail_after(REFRESH_S):
                async with _alone(self._store, self._target.key):
                    found = await self._load()
                    if found is None:
                        return None
                    if found.access_token == refused:
                        wanted = tuple(dict.fromkeys((*found.wanted_scopes, *scopes)))[:MAX_WANTED]
                        if wanted != found.wanted_scopes:
                            await self._save(replace(found, wanted_scopes=wanted))
                        return None
        except TimeoutError:
            raise OAuthUnavailable("the stored token was not read in time") from None
        self._credential = found
        return await self.current()

    async def _load(self) -> Credential | None:
        return await anyio.to_thread.run_sync(
            self._target.load, self._store, abandon_on_cancel=True
        )

    async def _refresh(self, worn: str, *, refused: bool) -> str | None:
        await load_discovery()
        try:
            with anyio.fail_after(REFRESH_S):
                async with _alone(self._store, self._target.key):
                    return await self._refresh_alone(worn, refused=refused)
        except TimeoutError:
            raise OAuthUnavailable("the token was not refreshed in time") from None

    async def _refresh_alone(self, worn: str, *, refused: bool) -> str | None:
        found = await self._load()
        if found is None:
            return None
        self._credential = found
        now_ms = self._now_ms()
        if found.access_token != worn and not found.expires_within(now_ms, EARLY_MS):
            return found.access_token
        if found.refresh_token is None:
            spent = (refused and found.access_token == worn) or found.expires_within(now_ms, 0)
            return None if spent else found.access_token
        try:
            return await self._renew(found, found.refresh_token)
        except GrantRefused:
            # Kept without what was refused: that there was a sign-in is worth knowing.
            await self._save(replace(found, refresh_token=None, expires_at=0))
            return None

    async def _save(self, credential: Credential) -> None:
        await anyio.to_thread.run_sync(self._store.save, credential)
        self._credential = credential

    async def _renew(self, credential: Credential, refresh_token: str) -> str:
        async with open_web(self._target) as web:
            found = await find_authorization_server(self._target, web)
            if found is None:
                raise OAuthFailed("the server has no authorization server any more")
            if credential.issuer and found.issuer != credential.issuer:
                raise GrantRefused("the server has another authorization server now")
            if credential.client_id == self._target.transport.oauth.client_id:
                client = found.configured_client(self._target)
            else:
                client = OAuthClient(
                    credential.client_id, credential.client_secret, credential.client_auth_method
                )
            form = {"grant_type": "refresh_token", "refresh_token": refresh_token}
            # A refresh token works once: the answer must be read, and kept.
            with anyio.CancelScope(shield=True):
                with anyio.fail_after(ANSWER_S):
                    token = await found.request_token(client, form)
                renewed = renewed_by(credential, token, self._now_ms())
                await self._save(renewed)
        return renewed.access_token


def renewed_by(credential: Credential, token: "OAuthToken", now_ms: int) -> Credential:
    """Put an answer of the authorization server into a credential; what it left out stays."""
    return replace(
        credential,
        access_token=token.access_token,
        expires_at=None if token.expires_in is None else now_ms + token.expires_in * 1000,
        refresh_token=token.refresh_token or credential.refresh_token,
        scopes=credential.scopes if token.scope is None else tuple(token.scope.split()),
    )


@asynccontextmanager
async def _alone(store: CredentialStore, key: str) -> AsyncIterator[None]:
    """Hold the lock of one credential, against other connections and other processes."""
    # The hash alone: a server's name need not be a file's.
    lock_name = f"credential-{key.rpartition('|')[2]}.lock"
    with store_failures():
        async with lock_awaited(store.home / "locks" / lock_name):
            yield
