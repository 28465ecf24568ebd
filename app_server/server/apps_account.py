"""The account as apps see it: a token that is renewed is no other sign-in.

Source: docs/apps.md, "Accounts".
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import anyio

from app_server.accounts.account_errors import AccountError
from app_server.accounts.accounts import Accounts
from app_server.accounts.credentials import AuthState, Credentials

logger = logging.getLogger(__name__)

PAUSE_S = 60.0
"""Seconds for which a renewed token is not renewed again when it is refused as well."""


@dataclass(frozen=True, slots=True)
class SignIn:
    """Credentials, and a number that grows with every sign-in and sign-out."""

    credentials: Credentials | None
    revision: int


class AppsAccount:
    """The AuthPort (app_server/apps/account.py) of the account that is signed in."""

    def __init__(self, accounts: Accounts, now_s: Callable[[], float] = anyio.current_time) -> None:
        self._accounts = accounts
        self._now_s = now_s
        self._replaced: str | None = None
        self._pause_ends_s = 0.0

    def current(self) -> SignIn:
        """Return what holds now; never waits."""
        return _sign_in(self._accounts.current())

    def subscribe(self, listener: Callable[[SignIn], None], /) -> Callable[[], None]:
        """Call a function at every change; returns what ends that."""
        return self._accounts.subscribe(lambda state: listener(_sign_in(state)))

    @property
    def is_recent(self) -> bool:
        """Whether `look` would return what is known, and look at nothing."""
        return self._accounts.is_recent

    async def look(self) -> SignIn:
        """Return what holds, also when another process has changed it."""
        return _sign_in(await self._accounts.look())

    async def fresh(self) -> SignIn:
        """Do the same, and have a token that wears out renewed; one that cannot be stays."""
        return _sign_in(await self._accounts.fresh())

    async def renewed(self, refused: str, /) -> SignIn:
        """Have a token that a server refused renewed, unless that was done; see AuthPort.

        What came for a refused token is left alone for PAUSE_S: a server that refuses every token
        must not have the issuer asked with every request.
        """
        worn = self._accounts.current().credentials
        is_paused = refused == self._replaced and self._now_s() < self._pause_ends_s
        if worn is None or worn.token != refused or is_paused:
            return self.current()
        try:
            found = (await self._accounts.replace(worn)).credentials
        except AccountError as exc:
            logger.warning("the token was not renewed: %s", exc)
            found = worn
        self._replaced = None if found is None else found.token
        self._pause_ends_s = self._now_s() + PAUSE_S
        return self.current()


def _sign_in(state: AuthState) -> SignIn:
    return SignIn(state.credentials, state.sign_in)
