"""The account that is signed in: one for the whole server.

Changes are made one after the other, also between processes; readers never wait. Renewing is
bounded, and an answer that has come is kept whatever happens to who asked.
Source: docs/accounts.md.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

import anyio

from app_server.accounts.account_errors import (
    OTHER_ACCOUNT,
    REFUSED,
    AccountError,
    IssuerUnavailable,
    LoginFailed,
    RefreshFailed,
)
from app_server.accounts.account_settings import AccountSettings
from app_server.accounts.credentials import (
    AuthState,
    Credentials,
    InvalidToken,
    RefreshReason,
    claims_of,
)
from app_server.accounts.issuer import Issuer
from app_server.accounts.store import AuthRecord, AuthStore, Tokens
from app_server.runtime.loader import LoadFailed, load
from protocol.model import JsonObject

if TYPE_CHECKING:
    from app_server.accounts.grants import Grants

logger = logging.getLogger(__name__)

ANSWER_S = 20.0
"""Seconds to wait for the answer to a refresh, also after its callers were cancelled."""

REVOKE_S = 10.0
"""Seconds for the issuer to revoke tokens; afterwards they expire by themselves."""


class TokenIssuer(Protocol):
    """Renews tokens, and takes them back; `Grants` is the real one."""

    async def renew(self, record: AuthRecord, reason: RefreshReason) -> JsonObject:
        """Refresh the tokens of a document."""

    async def revoke(self, record: AuthRecord) -> None:
        """Give the tokens of a document back."""


class IssuerAccess:
    """The issuer of any account."""

    def __init__(
        self,
        issuer: TokenIssuer | None = None,
        *,
        answer_s: float = ANSWER_S,
        revoke_s: float = REVOKE_S,
    ) -> None:
        """`issuer` stands for the real one, in tests.

        It has `answer_s` to renew tokens, and `revoke_s` to take them back.
        """
        self._issuer = issuer
        self._answer_s = answer_s
        self._revoke_s = revoke_s

    async def renew(self, record: AuthRecord, reason: RefreshReason) -> JsonObject:
        """Refresh the tokens of a document.

        Raises:
            RefreshFailed: it will never give any.
            AccountError: it did not give any.
            TimeoutError: it has not answered within `answer_s`.
        """
        with anyio.fail_after(self._answer_s):
            issuer = await self._load()
            return await issuer.renew(record, reason)

    async def revoke(self, record: AuthRecord | None) -> None:
        """Give tokens back; returns when the issuer has taken them, or after `revoke_s`."""
        if record is None or record.kind != "chatgpt" or record.access_token is None:
            return
        try:
            with anyio.fail_after(self._revoke_s):
                issuer = await self._load()
                await issuer.revoke(record)
        except (AccountError, TimeoutError) as exc:
            logger.warning("tokens were not given back: %s", exc)

    async def _load(self) -> TokenIssuer:
        if self._issuer is None:
            # With it comes httpx, which a start should not wait for.
            try:
                self._issuer = (await load(_grants))()
            except LoadFailed as exc:
                raise IssuerUnavailable(f"the issuer cannot be asked: {exc}") from exc
        return self._issuer


def _grants() -> "type[Grants]":
    from app_server.accounts.grants import Grants

    return Grants


EARLY_MS = 60_000
"""A token is renewed when it has this long to live."""

PAUSE_MS = 60_000
"""Milliseconds without a renewal after the issuer did not answer."""

MAX_AGE_MS = 8 * 24 * 3600 * 1000
"""A token that does not say when it expires is renewed at this age."""

Supplier: TypeAlias = Callable[[str | None], Awaitable[Credentials]]
"""Asks the client that keeps the tokens for another one; takes the account of the old one.

Raises AccountError when there is none.
"""

Listener: TypeAlias = Callable[[AuthState], None]


class CurrentAccount:
    """Signed-in account in memory, the supplier of its token, and listeners for changes."""

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
        """Call `listener` after every change, until the returned function is called."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def use_stored(self, record: AuthRecord | None, *, is_renewal: bool = False) -> None:
        """Take the account of a stored document; None means signed out.

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


REFRESH_S = 30.0
"""For a refresh, with the wait for others."""

LOOK_MS = 1_000
"""Seconds until a sign-in or sign-out of another process is noticed."""


class Accounts:
    """Signed-in account and its changes.

    Signing in and out and renewing are one class, as they replace one state under one lock.
    """

    def __init__(
        self,
        home: Path,
        read_settings: Callable[[], Awaitable[AccountSettings]],
        now_ms: Callable[[], int],
        issuer: TokenIssuer | None = None,
    ) -> None:
        """Take the place of the credentials from the first reading of the settings."""
        self._home = home
        self._read_settings = read_settings
        self._now_ms = now_ms
        self._issuer = IssuerAccess(issuer)
        self._account = CurrentAccount()
        self._store: AuthStore | None = None
        self._settings = AccountSettings()
        self._look_from_ms = 0
        self.look_ms = LOOK_MS
        """Milliseconds until a change of another process is noticed."""
        self._changing = anyio.Lock()

    def current(self) -> AuthState:
        """Return the current credentials and their revision: none before `load` has returned."""
        return self._account.state

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` after every change, until the returned function is called."""
        return self._account.subscribe(listener)

    @property
    def is_loaded(self) -> bool:
        """Whether the stored credentials have been read."""
        return self._store is not None

    @property
    def is_recent(self) -> bool:
        """Whether `look` would return the known account without reading the store."""
        if self._account.supplier is not None:
            return self.is_loaded
        # A clock that was set back says nothing of how long ago the last look was.
        since_ms = self._now_ms() - (self._look_from_ms - self.look_ms)
        return self.is_loaded and 0 <= since_ms < self.look_ms

    @property
    def refusal(self) -> str | None:
        """Why the current token cannot be renewed any more; None while that is not known."""
        return self._account.refusal

    async def load(self) -> AuthState:
        """Read the stored account once; later calls return at once.

        Raises:
            ConfigError: the settings cannot be read.
        """
        if self._store is None:
            async with self._changing:
                await self._open()
        return self._account.state

    async def look(self) -> AuthState:
        """Return the account, after a look at the store for changes of other processes.

        The file is looked at once in `look_ms`, and read when it is another one, unless a change of
        the account is under way here. One that cannot be read, or makes no sense, may be half
        written: it changes nothing. An account of a client stays.

        Raises:
            ConfigError: see `load`.
        """
        state = await self.load()
        if self.is_recent:
            return state
        assert self._store is not None
        self._look_from_ms = self._now_ms() + self.look_ms
        if await self._store.has_changed() and not self._changing.locked():
            async with self._changing:
                await self._take_over(self._store)
        return self._account.state

    async def _take_over(self, store: AuthStore) -> None:
        if self._account.supplier is not None or not await store.has_changed():
            # Whoever held the lock has done it.
            return
        try:
            record = await store.load_seen()
            if record is None and await store.is_there():
                return
        except AccountError as exc:
            logger.warning("stored credentials cannot be read: %s", exc)
            return
        self._use_if_usable(record, is_renewal=True)

    async def fresh(self) -> AuthState:
        """Return the account, with a token that is good for a while if that can be had.

        What another process has stored is taken over; see `look`.

        Raises:
            ConfigError: see `load`.
        """
        state = await self.look()
        if state.credentials is None or not self._account.should_be_renewed(self._now_ms()):
            return state
        try:
            return await self._refresh(state.credentials, "proactive")
        except AccountError as exc:
            logger.warning("the token was not renewed: %s", exc)
            self._account.leave_alone(self._now_ms())
            return self._account.state

    async def refresh(self) -> AuthState:
        """Renew the token now, except one that a client keeps.

        Raises:
            RefreshFailed: it will not be renewed.
            AccountError: it was not.
            ConfigError: see `load`.
        """
        credentials = (await self.load()).credentials
        if credentials is None or credentials.kind != "chatgpt":
            return self._account.state
        return await self._refresh(credentials, "forced")

    async def replace(self, refused: Credentials) -> AuthState:
        """Return another token than the one that a server refused.

        The answer may be that nobody is signed in any more. An API key has no other.

        Raises:
            RefreshFailed, AccountError: there is none.
        """
        return await self._refresh(refused, "unauthorized_recovery")

    async def sign_in_with_key(self, key: str) -> None:
        """Use an API key, and keep it.

        Raises:
            AccountError: it cannot be stored; nothing has changed.
        """
        async with self._alone() as store:
            await store.save(record := AuthRecord.of_api_key(key))
            self._account.use_stored(record)

    async def sign_in_with_tokens(self, tokens: Tokens, issuer: Issuer) -> None:
        """Store the issuer's tokens and sign in with them; the former ones are revoked.

        Raises:
            LoginFailed: they are for no account that may be used here.
            AccountError: they cannot be stored; nothing has changed.
        """
        settings = await self._read_settings()
        try:
            record = AuthRecord.of_tokens(tokens, issuer, self._now_ms())
        except InvalidToken as exc:
            raise LoginFailed(str(exc)) from exc
        credentials = record.credentials()
        if credentials is None:
            raise LoginFailed("the issuer gave an empty token")
        settings.require_workspace(credentials.account_id)
        async with self._alone() as store:
            old = await store.load()
            await store.save(record)
            self._settings = settings
            self._account.use_stored(record)
        if old is not None and old.refresh_token != record.refresh_token:
            await self._issuer.revoke(old)

    async def use_supplied(self, credentials: Credentials, supplier: Supplier) -> None:
        """Use a token that a client keeps; it is in memory only, and `supplier` renews it."""
        await self.load()
        async with self._changing:
            self._account.use_supplied(credentials, supplier)

    async def sign_out(self) -> None:
        """Forget the credentials, also supplied ones, and revoke the tokens.

        Returns when the issuer has answered, or did not answer for REVOKE_S.

        Raises:
            AccountError: what is stored is there still.
        """
        async with self._alone() as store:
            old = await store.load()
            await store.delete()
            self._account.use_stored(None)
        await self._issuer.revoke(old)

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[AuthStore]:
        async with self._changing:
            store = await self._open()
            async with store.alone():
                yield store

    async def _open(self) -> AuthStore:
        if self._store is not None:
            return self._store
        self._settings = await self._read_settings()
        store = AuthStore(self._home, self._settings.store)
        try:
            record = await store.load_seen()
        except AccountError as exc:
            logger.warning("stored credentials cannot be read: %s", exc)
            record = None
        self._use_if_usable(record)
        self._store = store
        return store

    def _use_if_usable(self, record: AuthRecord | None, *, is_renewal: bool = False) -> None:
        if record is not None and self._usable(record) is None:
            logger.warning("stored credentials cannot be used here")
            record = None
        self._account.use_stored(record, is_renewal=is_renewal)

    def _usable(self, record: AuthRecord | None) -> Credentials | None:
        found = None if record is None else record.credentials()
        return found if found is not None and self._settings.permits(found) else None

    async def _refresh(self, old: Credentials, reason: RefreshReason) -> AuthState:
        try:
            with anyio.fail_after(REFRESH_S):
                async with self._changing:
                    if old != self._account.state.credentials:
                        # Somebody else was faster.
                        return self._account.state
                    if (refusal := self.refusal) is not None:
                        raise RefreshFailed(refusal)
                    if (supplier := self._account.supplier) is not None:
                        renewed = await supplier(old.account_id)
                        self._account.use_supplied(renewed, supplier, is_renewal=True)
                    elif old.kind == "chatgpt":
                        store = await self._open()
                        async with store.alone():
                            await self._renew(store, old, reason)
                    return self._account.state
        except TimeoutError:
            raise IssuerUnavailable("the token was not refreshed in time") from None

    async def _renew(self, store: AuthStore, old: Credentials, reason: RefreshReason) -> None:
        record = await store.load()
        stored = self._usable(record)
        if record is None or stored is None or stored.account_id != old.account_id:
            raise RefreshFailed(OTHER_ACCOUNT)
        if stored.token != old.token:
            self._account.use_stored(record, is_renewal=True)
            return
        try:
            if record.refresh_token is None:
                raise RefreshFailed(REFUSED)
            # A refresh token may work once: the answer must be read, and kept.
            with anyio.CancelScope(shield=True):
                answer = await self._issuer.renew(record, reason)
                renewed = record.renewed(answer, self._now_ms())
                await store.save(renewed)
                self._account.use_stored(renewed, is_renewal=True)
        except RefreshFailed as exc:
            self._account.refusal = str(exc)
            raise
