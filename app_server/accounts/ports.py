"""What the account asks of others."""

from collections.abc import Awaitable, Callable
from typing import Literal, Protocol, TypeAlias

from app_server.accounts.credentials import Credentials
from app_server.accounts.record import AuthRecord
from protocol.model import JsonObject

RefreshReason: TypeAlias = Literal["forced", "proactive", "unauthorized_recovery"]


class TokenIssuer(Protocol):
    """Renews tokens, and takes them back; `Grants` is the real one."""

    async def renew(self, record: AuthRecord, reason: RefreshReason) -> JsonObject:
        """Ask for new tokens for those of a document."""

    async def revoke(self, record: AuthRecord) -> None:
        """Give the tokens of a document back."""


Supplier: TypeAlias = Callable[[str | None], Awaitable[Credentials]]
"""Asks the client that keeps the tokens for another one; takes the account of the old one.

Raises AccountError when there is none.
"""
