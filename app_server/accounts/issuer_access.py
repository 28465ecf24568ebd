"""What the account asks of its issuer: within bounds, and loaded when it is first needed."""

import logging
from typing import TYPE_CHECKING, Protocol

import anyio

from app_server.accounts.credentials import RefreshReason
from app_server.accounts.errors import AccountError, IssuerUnavailable
from app_server.accounts.record import AuthRecord
from app_server.runtime.loader import LoadFailed, load
from protocol.model import JsonObject

if TYPE_CHECKING:
    from app_server.accounts.grants import Grants

logger = logging.getLogger(__name__)

ANSWER_S = 20.0
"""How long the answer to a refresh is waited for, even when nobody wants it any more."""

REVOKE_S = 10.0
"""How long the issuer may take to take tokens back; after that they expire by themselves."""


class TokenIssuer(Protocol):
    """Renews tokens, and takes them back; `Grants` is the real one."""

    async def renew(self, record: AuthRecord, reason: RefreshReason) -> JsonObject:
        """Ask for new tokens for those of a document."""

    async def revoke(self, record: AuthRecord) -> None:
        """Give the tokens of a document back."""


class IssuerAccess:
    """The issuer of any account."""

    def __init__(self, issuer: TokenIssuer | None = None) -> None:
        """`issuer` stands for the real one, in tests."""
        self._issuer = issuer

    async def renew(self, record: AuthRecord, reason: RefreshReason) -> JsonObject:
        """Ask for new tokens for those of a document.

        Raises:
            RefreshFailed: it will never give any.
            AccountError: it did not give any.
            TimeoutError: it has not answered within ANSWER_S.
        """
        with anyio.fail_after(ANSWER_S):
            issuer = await self._load()
            return await issuer.renew(record, reason)

    async def revoke(self, record: AuthRecord | None) -> None:
        """Give tokens back; returns when the issuer has taken them, or after REVOKE_S."""
        if record is None or record.kind != "chatgpt" or record.access_token is None:
            return
        try:
            with anyio.fail_after(REVOKE_S):
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
