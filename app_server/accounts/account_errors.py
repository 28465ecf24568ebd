"""Failures of accounts; no text repeats a secret."""


class AccountError(Exception):
    """A sign-in, a refresh or a sign-out did not work out."""


class IssuerUnavailable(AccountError):
    """The issuer does not answer, or is not well: another time it may."""


class BackendUnavailable(AccountError):
    """The hosted backend does not answer: another time it may."""


class BackendRefused(AccountError):
    """Unexpected answer of the hosted backend."""

    def __init__(self, text: str, status: int) -> None:
        """`status` is that of HTTP; 200 where the body was no answer."""
        super().__init__(text)
        self.status = status


class LoginFailed(AccountError):
    """A sign-in ended without credentials."""


class DeviceCodeNotOffered(LoginFailed):
    """The issuer gives no device codes."""


class RefreshFailed(AccountError):
    """The token will not be renewed: the user has to sign in again."""


_AGAIN = "Please log out and sign in again."
_REFRESH = "Your access token could not be refreshed"

REFUSALS = {
    "refresh_token_expired": f"{_REFRESH} because your refresh token has expired. {_AGAIN}",
    "refresh_token_reused": f"{_REFRESH} because your refresh token was already used. {_AGAIN}",
    "refresh_token_invalidated": f"{_REFRESH} because your refresh token was revoked. {_AGAIN}",
}
"""Error codes of the issuer after which there is no other answer, and the text for users."""

REFUSED = f"{_REFRESH}. {_AGAIN}"
OTHER_ACCOUNT = (
    f"{_REFRESH} because you have since logged out or signed in to another account."
    " Please sign in again."
)
