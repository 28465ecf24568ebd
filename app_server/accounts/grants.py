"""Requests to the issuer: tokens for a code, refresh of tokens, revocation."""

from app_server.accounts.account_errors import (
    REFUSALS,
    REFUSED,
    IssuerUnavailable,
    LoginFailed,
    RefreshFailed,
)
from app_server.accounts.credentials import RefreshReason
from app_server.accounts.issuer import Issuer
from app_server.accounts.store import AuthRecord, Tokens
from app_server.accounts.web import AccountWeb, WebAnswer, open_issuer_web
from protocol.model import JsonObject

MAX_DETAIL = 300
"""Characters of what the issuer says that are shown."""


async def exchange_code(
    web: AccountWeb, issuer: Issuer, code: str, redirect_uri: str, verifier: str
) -> Tokens:
    """Turn an authorization code into tokens.

    Raises:
        LoginFailed: the issuer refuses; the text is what it says about that.
        AccountError: see `AccountWeb.ask`.
    """
    answer = await web.post_form(
        issuer.token_url,
        {
            "grant_type": "authorization_code",
            "client_id": issuer.client_id,
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
        },
    )
    if not answer.ok:
        raise LoginFailed(
            f"token endpoint returned status {answer.shown_status}: {_detail(answer)}"
        )
    body = answer.parse()
    texts = [body.get(name) for name in ("id_token", "access_token", "refresh_token")]
    if not all(isinstance(text, str) for text in texts):
        raise LoginFailed("the token endpoint's answer makes no sense")
    return Tokens(*map(str, texts))


class Grants:
    """The issuer of stored tokens, asked over connections of its own each time."""

    async def renew(self, record: AuthRecord, reason: RefreshReason) -> JsonObject:
        """Refresh the tokens of a document; returns the issuer's answer.

        Raises:
            RefreshFailed: there will be none for this refresh token.
            IssuerUnavailable: the issuer does not answer, or is not well.
            AccountError: see `AccountWeb.ask`.
        """
        issuer, refresh_token = record.given_by, record.refresh_token
        assert refresh_token is not None
        body: JsonObject = {
            "client_id": issuer.client_id,
            "grant_type": "refresh_token",
            "refresh_reason": reason,
            "refresh_token": refresh_token,
        }
        async with open_issuer_web() as web:
            answer = await web.ask(issuer.refresh_url, body)
        found = answer.parse()
        if answer.ok:
            if not isinstance(found.get("access_token"), str):
                raise IssuerUnavailable("the issuer's answer to a refresh makes no sense")
            return found
        code = _error_code(found).lower()
        if answer.status == 401 or code in REFUSALS:
            raise RefreshFailed(REFUSALS.get(code, REFUSED))
        raise IssuerUnavailable(f"Failed to refresh token: {answer.shown_status}")

    async def revoke(self, record: AuthRecord) -> None:
        """Give the tokens of a document back; the refresh token takes the others with it.

        Raises:
            AccountError: the issuer did not take them.
        """
        issuer = record.given_by
        if record.refresh_token is not None:
            body: JsonObject = {
                "token": record.refresh_token,
                "token_type_hint": "refresh_token",
                "client_id": issuer.client_id,
            }
        else:
            body = {"token": record.access_token, "token_type_hint": "access_token"}
        async with open_issuer_web() as web:
            answer = await web.ask(issuer.revoke_url, body)
        if not answer.ok:
            raise IssuerUnavailable(f"tokens were not revoked: {answer.shown_status}")


def _error_code(body: JsonObject) -> str:
    error = body.get("error")
    if isinstance(error, dict):
        error = error.get("code")
    code = error if isinstance(error, str) else body.get("code")
    return code if isinstance(code, str) else ""


def _detail(answer: WebAnswer) -> str:
    body = answer.parse()
    error = body.get("error")
    message = error.get("message") if isinstance(error, dict) else None
    for text in (body.get("error_description"), message, _error_code(body)):
        if isinstance(text, str) and text.strip():
            return text.strip()[:MAX_DETAIL]
    # What is no OAuth error might repeat what it was sent.
    return "unknown error"
