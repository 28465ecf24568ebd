"""What others need of the account that is signed in."""

import re
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

MAX_TOKEN_CHARS = 64 * 1024

_SENDABLE = re.compile(rf"[\x20-\x7e]{{1,{MAX_TOKEN_CHARS}}}")

Kind: TypeAlias = Literal["apikey", "chatgpt", "chatgptAuthTokens"]

RefreshReason: TypeAlias = Literal["forced", "proactive", "unauthorized_recovery"]
"""Why new tokens are asked for."""


def is_sendable(text: str) -> bool:
    """Whether a text can stand in a header; others would come back in errors of libraries."""
    return _SENDABLE.fullmatch(text) is not None and not text.isspace()


@dataclass(frozen=True, slots=True)
class Credentials:
    """One account, with the token that is good for it now."""

    kind: Kind
    token: str = field(repr=False)
    """Bearer token: an API key, or an access token."""
    account_id: str | None = None
    """Workspace; None for an API key, and where the issuer did not say."""
    chatgpt_user_id: str | None = None
    is_workspace: bool = False
    """Whether the account belongs to an organization."""
    is_fedramp: bool = False
    email: str | None = field(default=None, repr=False)
    plan: str | None = None
    """Plan as the wire names it; None for an API key."""

    @property
    def is_chatgpt(self) -> bool:
        """Whether the account is one of ChatGPT's."""
        return self.kind != "apikey"

    def is_same_account(self, other: "Credentials") -> bool:
        """Whether the same user of the same account is signed in, in the same way."""
        return replace(self, token=other.token, email=other.email, plan=other.plan) == other

    def headers(self) -> dict[str, str]:
        """Make the headers of a request on behalf of the account."""
        headers = {"authorization": f"Bearer {self.token}"}
        if self.is_chatgpt and self.account_id is not None:
            headers["chatgpt-account-id"] = self.account_id
        if self.is_fedramp:
            headers["x-openai-fedramp"] = "true"
        return headers


@dataclass(frozen=True, slots=True)
class AuthState:
    """Credentials and their revision, read together."""

    credentials: Credentials | None = None
    """None: nobody is signed in."""
    revision: int = 0
    """Grows with every change of the credentials: sign-in, sign-out, another account or token."""
    sign_in: int = 0
    """Grows with every change but another token of the account."""
