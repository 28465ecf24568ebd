"""The account in the memory of this process: one state, replaced as a whole. No I/O.

Source: docs/accounts.md.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from app_server.accounts.claims import claims_of
from app_server.accounts.credentials import AuthState, Credentials
from app_server.accounts.record import AuthRecord

logger = logging.getLogger(__name__)

EARLY_MS = 60_000
"""A token is renewed when it has this long to live."""

PAUSE_MS = 60_000
"""How long a token is left alone after an issuer did not answer."""

MAX_AGE_MS = 8 * 24 * 3600 * 1000
"""A token that does not say when it expires is renewed at this age."""

Supplier: TypeAlias = Callable[[str | None], Awaitable[Credentials]]
"""Asks the client that keeps the tokens for another one; takes the account of the old one.

Raises AccountError when there is none.
"""

Listener: TypeAlias = Callable[[AuthState], None]


class CurrentAccount:
    """Who is signed in, where the token comes from, and who is called after changes."""

    def __init__(self) -> None:
        self.state = AuthState()
        self.supplier: Supplier | None = None
        """Renews a token that a client keeps; None for one that is stored."""
        self.refusal: str | None = None
        """Why the token cannot be renewed any more; None while that is not known."""
        self._left_alone_until_ms = 0
        self._record: AuthRecord | None = None
        self._listeners: list[Listener] = []

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` after every change, until what is returned is called."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def use_stored(self, record: AuthRecord | None, *, is_renewal: bool = False) -> None:
        """Take the account of a document; with None nobody is signed in.

        After a renewal the same account counts as the same sign-in.
        """
        self.supplier = None
        self._record = record
        self._set(None if record is None else record.credentials(), is_renewal=is_renewal)

    def use_supplied(
        self, credentials: Credentials, supplier: Supplier, *, is_renewal: bool = False
    ) -> None:
        """Take an account whose token a client keeps."""
        self.supplier = supplier
        self._record = None
        self._set(credentials, is_renewal=is_renewal)

    def _set(self, credentials: Credentials | None, *, is_renewal: bool) -> None:
        before = self.state
        if credentials == before.credentials:
            return
        self.refusal = None
        is_same = (
            is_renewal
            and credentials is not None
            and before.credentials is not None
            and credentials.is_same_account(before.credentials)
        )
        sign_in = before.sign_in if is_same else before.sign_in + 1
        # One assignment: who reads finds credentials and revision that belong together.
        self.state = AuthState(credentials, before.revision + 1, sign_in)
        for listener in list(self._listeners):
            try:
                listener(self.state)
            except Exception:
                logger.exception("a listener of the account failed")

    def leave_alone(self, now_ms: int) -> None:
        """Have the token not renewed for PAUSE_MS: it still may be good."""
        self._left_alone_until_ms = now_ms + PAUSE_MS

    def should_be_renewed(self, now_ms: int) -> bool:
        """Whether the token is stored, can be renewed, and expires soon or is old."""
        credentials = self.state.credentials
        if credentials is None or credentials.kind != "chatgpt" or self.refusal is not None:
            return False
        if now_ms < self._left_alone_until_ms:
            return False
        claims = claims_of(credentials.token)
        if claims is not None and claims.expires_at is not None:
            return claims.expires_at * 1000 <= now_ms + EARLY_MS
        since_ms = None if self._record is None else self._record.last_refresh_ms
        return since_ms is not None and since_ms + MAX_AGE_MS <= now_ms
