"""Issuer of tokens, and the URLs of its endpoints.

The variables are those of Codex; tests put an issuer of their own in their place.
Source: docs/accounts.md, "The issuer".
"""

import os
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from app_server.accounts.account_errors import AccountError
from app_server.runtime.http.loopback_address import is_this_machine

ISSUER = "https://auth.openai.com"
CLIENT_ID = "app_EMoamEEZ73f0CkXaXp7hrann"

ISSUER_VARIABLE = "CODEX_APP_SERVER_LOGIN_ISSUER"
CLIENT_ID_VARIABLE = "CODEX_APP_SERVER_LOGIN_CLIENT_ID"
REFRESH_VARIABLE = "CODEX_REFRESH_TOKEN_URL_OVERRIDE"
REVOKE_VARIABLE = "CODEX_REVOKE_TOKEN_URL_OVERRIDE"


@dataclass(frozen=True, slots=True)
class Issuer:
    """One issuer of tokens, and our client id there."""

    url: str
    """Without a slash at its end."""
    client_id: str

    @classmethod
    def for_sign_in(cls) -> "Issuer":
        """Return the issuer that users sign in at."""
        return cls.of(_variable(ISSUER_VARIABLE), _variable(CLIENT_ID_VARIABLE))

    @classmethod
    def of(cls, url: str | None, client_id: str | None) -> "Issuer":
        """Return the issuer of some tokens; the default one where they do not say."""
        return cls((url or ISSUER).rstrip("/"), client_id or CLIENT_ID)

    @property
    def authorize_url(self) -> str:
        """URL of the authorization endpoint, for the browser."""
        return f"{self.url}/oauth/authorize"

    @property
    def token_url(self) -> str:
        """URL of the token endpoint."""
        return f"{self.url}/oauth/token"

    @property
    def refresh_url(self) -> str:
        """URL of the refresh endpoint."""
        return _variable(REFRESH_VARIABLE) or self.token_url

    @property
    def revoke_url(self) -> str:
        """URL of the revocation endpoint; raises AccountError when it cannot be derived."""
        if (url := _variable(REVOKE_VARIABLE)) is not None:
            return url
        if (url := _variable(REFRESH_VARIABLE)) is not None:
            return _split(url)._replace(path="/oauth/revoke", query="").geturl()
        return f"{self.url}/oauth/revoke"

    @property
    def device_url(self) -> str:
        """URL of the page on which the user enters a device code."""
        return f"{self.url}/codex/device"

    @property
    def device_api(self) -> str:
        """Base URL of the device-code endpoints."""
        return f"{self.url}/api/accounts/deviceauth"

    @property
    def device_redirect_url(self) -> str:
        """Redirect URL of a device-code sign-in."""
        return f"{self.url}/deviceauth/callback"


def require_private_channel(url: str, whose: str = "the issuer") -> None:
    """Refuse to send secrets where others could read them.

    Raises:
        AccountError: the address is neither https nor on this machine.
    """
    target = _split(url)
    if target.scheme == "https" or (target.scheme == "http" and is_this_machine(target.hostname)):
        return
    raise AccountError(f"an address of {whose} is neither https nor on this machine")


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:
        raise AccountError("an address of the issuer makes no sense") from None


def _variable(name: str) -> str | None:
    value = os.environ.get(name)
    return value if value and value.strip() else None
