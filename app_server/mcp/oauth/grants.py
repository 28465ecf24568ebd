"""Getting a client id, and tokens for a code or for a refresh token.

Source: RFC 7591; OAuth 2.1, sections 2.4, 4.1.3 and 4.3.
"""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, urlencode

from mcp.client.auth import OAuthRegistrationError
from mcp.client.auth.oauth2 import check_registration_usable
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl, ValidationError
from pydantic_core import from_json

from app_server.mcp.errors import OAuthFailed, OAuthUnavailable
from app_server.mcp.oauth.discovery import GRANTS, Discovered
from app_server.mcp.oauth.web import Web, WebAnswer

JSON_HEADERS = {"accept": "application/json", "content-type": "application/json"}
FORM_HEADERS = {"accept": "application/json", "content-type": "application/x-www-form-urlencoded"}

FINAL_WORDS = frozenset({"invalid_grant", "invalid_client", "unauthorized_client"})
"""Error codes after which the same question will never get another answer."""

ERROR_WORD = re.compile(r"[a-z_]{1,64}")
"""Error codes of OAuth; anything else that a server says in their place is not repeated."""


class GrantRefused(OAuthFailed):
    """The authorization server will never give a token for this."""


@dataclass(frozen=True, slots=True)
class OAuthClient:
    """Our OAuth client at an authorization server."""

    client_id: str
    secret: str | None = field(default=None, repr=False)
    auth_method: str | None = None
    """`client_secret_basic` or `client_secret_post`; None without a secret."""


async def register(
    web: Web, found: Discovered, redirect_uri: str, scope: str | None, name: str
) -> OAuthClient:
    """Register as a public client and return what the authorization server made of it.

    Raises:
        OAuthFailed: it refuses, or gives something that cannot be used.
        OAuthUnavailable: it does not answer.
    """
    endpoint = found.metadata.registration_endpoint
    if endpoint is None:
        raise OAuthFailed(
            "the authorization server does not register clients; configure `oauth.client_id`"
        )
    request = OAuthClientMetadata(
        client_name=name,
        redirect_uris=[AnyUrl(redirect_uri)],
        grant_types=list(GRANTS),
        token_endpoint_auth_method="none",
        scope=scope,
    )
    content = request.model_dump_json(by_alias=True, exclude_none=True).encode()
    answer = await web.post(str(endpoint), JSON_HEADERS, content)
    if answer.status not in (200, 201):
        raise _refusal("registration", answer)
    try:
        client = OAuthClientInformationFull.model_validate_json(answer.body)
        check_registration_usable(client)
    except (ValidationError, OAuthRegistrationError):
        # Their texts repeat what the server sent, secrets with it.
        raise OAuthFailed("the registration cannot be used") from None
    if client.client_secret is None or client.token_endpoint_auth_method in (None, "none"):
        return OAuthClient(client.client_id)
    return OAuthClient(client.client_id, client.client_secret, client.token_endpoint_auth_method)


async def request_token(
    web: Web, found: Discovered, client: OAuthClient, form: Mapping[str, str]
) -> OAuthToken:
    """Ask for a token; `form` has the grant.

    Raises:
        GrantRefused: there is none for this grant, and never will be.
        OAuthUnavailable: the authorization server does not answer, or is not well.
        OAuthFailed: it gives none, or its answer makes no sense.
    """
    data = {**form, "client_id": client.client_id, "resource": found.resource}
    headers = dict(FORM_HEADERS)
    if client.secret is not None and client.auth_method == "client_secret_basic":
        pair = f"{quote(client.client_id, safe='')}:{quote(client.secret, safe='')}"
        headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    elif client.secret is not None:
        data["client_secret"] = client.secret
    url = str(found.metadata.token_endpoint)
    answer = await web.post(url, headers, urlencode(data).encode())
    if answer.status not in (200, 201):
        raise _refusal("the request for a token", answer)
    try:
        return OAuthToken.model_validate_json(answer.body)
    except ValidationError:
        raise OAuthFailed("the answer to the request for a token makes no sense") from None


def _refusal(what: str, answer: WebAnswer) -> OAuthFailed:
    word = ""
    try:
        body = from_json(answer.body)
    except ValueError:
        body = None
    if isinstance(body, dict):
        word = error_word(body.get("error"))
    text = f"{what} was refused: HTTP {answer.status}{f' {word}' if word else ''}"
    if answer.status == 429 or answer.status >= 500:
        return OAuthUnavailable(text)
    return GrantRefused(text) if word in FINAL_WORDS else OAuthFailed(text)


def error_word(value: object) -> str:
    """Return an error code of OAuth, or nothing when it is none."""
    return value if isinstance(value, str) and ERROR_WORD.fullmatch(value) else ""
