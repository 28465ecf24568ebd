"""The authorization server of an MCP server: found, registered with, and asked for tokens.

Importing this module imports the MCP SDK, which takes longer than all else of a connection:
loading.py beside it does so when an authorization server is asked for, and AuthProbe.
Source: RFC 9728, RFC 8414, RFC 7591; OAuth 2.1, sections 2.4, 4.1.3 and 4.3; MCP 2025-06-18,
"Authorization"; docs/mcp.md, "Sign-in".
"""

import base64
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import quote, urlencode, urlsplit

import httpx2
from mcp.client.auth import OAuthFlowError, OAuthRegistrationError
from mcp.client.auth.oauth2 import PKCEParameters, check_registration_usable
from mcp.client.auth.utils import (
    build_oauth_authorization_server_metadata_discovery_urls,
    build_protected_resource_metadata_discovery_urls,
    extract_resource_metadata_from_www_auth,
    extract_scope_from_www_auth,
    get_client_metadata_scopes,
    issuers_match,
    validate_authorization_response_iss,
)
from mcp.shared.auth import (
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from mcp.shared.auth_utils import check_resource_allowed, resource_url_from_server_url
from pydantic import AnyUrl, BaseModel, ValidationError
from pydantic_core import from_json

from app_server.mcp.catalog.config import ServerUnavailable
from app_server.mcp.errors import GrantRefused, OAuthFailed, OAuthUnavailable
from app_server.mcp.oauth.credentials import OAuthClient
from app_server.mcp.oauth.target import SignInTarget
from app_server.mcp.oauth.web import Web, WebAnswer, open_web

GRANTS = ["authorization_code", "refresh_token"]
PROBE_HEADERS = {"accept": "application/json, text/event-stream"}
PING_HEADERS = {**PROBE_HEADERS, "content-type": "application/json"}
PING = b'{"jsonrpc":"2.0","id":0,"method":"ping"}'
DOCUMENT_HEADERS = {"accept": "application/json", "mcp-protocol-version": "2025-06-18"}
JSON_HEADERS = {"accept": "application/json", "content-type": "application/json"}
FORM_HEADERS = {"accept": "application/json", "content-type": "application/x-www-form-urlencoded"}

FINAL_WORDS = frozenset({"invalid_grant", "invalid_client", "unauthorized_client"})
"""Error codes after which the same question will never get another answer."""

ERROR_WORD = re.compile(r"[a-z_]{1,64}")
"""Error codes of OAuth; anything else that a server says in their place is not repeated."""

Document = TypeVar("Document", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class AuthorizationServer:
    """The authorization server of an MCP server, and the resource and scope of its tokens."""

    web: Web
    metadata: OAuthMetadata
    resource: str
    """The `resource` of token requests (RFC 8707)."""
    scope: str | None
    """Scopes that the server asks for or offers, divided by blanks."""

    @property
    def issuer(self) -> str:
        """The authorization server's name."""
        return str(self.metadata.issuer)

    async def register(self, redirect_uri: str, scope: str | None, name: str) -> OAuthClient:
        """Register as a public client and return what the authorization server made of it.

        Raises:
            OAuthFailed: it refuses, or gives something that cannot be used.
            OAuthUnavailable: it does not answer.
        """
        endpoint = self.metadata.registration_endpoint
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
        answer = await self.web.post(str(endpoint), JSON_HEADERS, content)
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
        return OAuthClient(
            client.client_id, client.client_secret, client.token_endpoint_auth_method
        )

    def configured_client(self, target: SignInTarget) -> OAuthClient:
        """Return the client of `oauth.client_id`, with its secret if it has one.

        Raises:
            ServerUnavailable: the variable of the secret is not set.
        """
        client_id, secret = (
            target.transport.oauth.client_id,
            target.transport.client_secret(target.name),
        )
        if client_id is None:
            raise ValueError("no client is configured")
        if secret is None:
            return OAuthClient(client_id)
        # RFC 8414: a server that names no methods knows the first.
        known = self.metadata.token_endpoint_auth_methods_supported or ["client_secret_basic"]
        basic = "client_secret_basic" in known or "client_secret_post" not in known
        return OAuthClient(
            client_id, secret, "client_secret_basic" if basic else "client_secret_post"
        )

    def new_proof(self) -> PKCEParameters:
        """Make the secret of one sign-in that its code is exchanged with, and its hash."""
        return PKCEParameters.generate()

    def code_of(self, code: str | None, error: str | None, issuer: str | None) -> str:
        """Return the code of the parameters that a redirect of the browser brought.

        Raises:
            OAuthFailed: it brought none, or comes from another authorization server.
        """
        try:
            validate_authorization_response_iss(issuer, self.metadata)
        except OAuthFlowError:
            raise OAuthFailed("the answer came from another authorization server") from None
        if error is not None or not code:
            word = _error_word(error) or "no code"
            raise OAuthFailed(f"the authorization server refused the sign-in: {word}")
        return code

    async def request_token(self, client: OAuthClient, form: Mapping[str, str]) -> OAuthToken:
        """Ask for a token; `form` has the grant.

        Raises:
            GrantRefused: there is none for this grant, and never will be.
            OAuthUnavailable: the authorization server does not answer, or is not well.
            OAuthFailed: it gives none, or its answer makes no sense.
        """
        data = {**form, "client_id": client.client_id, "resource": self.resource}
        headers = dict(FORM_HEADERS)
        if client.secret is not None and client.auth_method == "client_secret_basic":
            pair = f"{quote(client.client_id, safe='')}:{quote(client.secret, safe='')}"
            headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        elif client.secret is not None:
            data["client_secret"] = client.secret
        url = str(self.metadata.token_endpoint)
        answer = await self.web.post(url, headers, urlencode(data).encode())
        if answer.status not in (200, 201):
            raise _refusal("the request for a token", answer)
        try:
            return OAuthToken.model_validate_json(answer.body)
        except ValidationError:
            raise OAuthFailed("the answer to the request for a token makes no sense") from None


async def discover(
    web: Web, server_url: str, configured_resource: str | None = None
) -> AuthorizationServer | None:
    """Find the authorization server; None when the MCP server names none.

    `configured_resource` wins over what the server calls itself.

    Raises:
        OAuthUnavailable: a server did not answer, or is not well.
        OAuthFailed: what it says contradicts itself.
    """
    challenge = await _challenge(web, server_url)
    protected = await _protected_resource(
        web, server_url, extract_resource_metadata_from_www_auth(challenge)
    )
    metadata = await _authorization_server(web, server_url, protected)
    if metadata is None:
        return None
    if configured_resource is not None:
        resource = configured_resource
    elif protected is not None:
        resource = str(protected.resource)
    else:
        resource = resource_url_from_server_url(server_url)
    scope = get_client_metadata_scopes(
        extract_scope_from_www_auth(challenge), protected, metadata, GRANTS
    )
    return AuthorizationServer(web, metadata, resource, scope)


async def offers_sign_in(target: SignInTarget) -> bool:
    """Whether the server has an authorization server that can be found; waits without limit."""
    try:
        async with open_web(target) as web:
            return await discover(web, target.transport.url) is not None
    except (OAuthFailed, ServerUnavailable):
        return False


async def _challenge(web: Web, server_url: str) -> httpx2.Response:
    """Ask without a token; what matters is in the headers of a refusal."""
    answer = await web.probe("GET", server_url, PROBE_HEADERS)
    if answer.status not in (401, 403):
        # Some ask for a token only where something is sent. A ping starts no session.
        answer = await web.probe("POST", server_url, PING_HEADERS, PING)
    return httpx2.Response(answer.status, headers=answer.headers)


async def _protected_resource(
    web: Web, server_url: str, named: str | None
) -> ProtectedResourceMetadata | None:
    if named is not None and not web.may_visit(named):
        named = None
    urls = build_protected_resource_metadata_discovery_urls(named, server_url)
    found = await _first_document(web, urls, ProtectedResourceMetadata)
    wanted = resource_url_from_server_url(server_url)
    if found is not None and not check_resource_allowed(wanted, str(found.resource)):
        raise OAuthFailed("the protected resource metadata is that of another resource")
    return found


async def _authorization_server(
    web: Web, server_url: str, protected: ProtectedResourceMetadata | None
) -> OAuthMetadata | None:
    if protected is not None:
        issuers = [str(protected.authorization_servers[0])]
    else:
        # Older servers are their own authorization servers.
        parts = urlsplit(server_url)
        issuers = [server_url, f"{parts.scheme}://{parts.netloc}"]
    urls = dict.fromkeys(
        url
        for issuer in issuers
        for url in build_oauth_authorization_server_metadata_discovery_urls(issuer, server_url)
    )
    ordered = sorted(urls, key=lambda url: "oauth-authorization-server" not in url)
    found = await _first_document(web, ordered, OAuthMetadata)
    if found is None:
        return None
    if not any(issuers_match(str(found.issuer), issuer) for issuer in issuers):
        raise OAuthFailed("the authorization server metadata names another issuer")
    return _checked(web, found)


def _checked(web: Web, metadata: OAuthMetadata) -> OAuthMetadata:
    for endpoint in (
        metadata.authorization_endpoint,
        metadata.token_endpoint,
        metadata.registration_endpoint,
    ):
        if endpoint is not None and not web.may_visit(str(endpoint)):
            raise OAuthFailed("the authorization server names an address that is not allowed")
    methods = metadata.code_challenge_methods_supported
    if methods is not None and "S256" not in methods:
        raise OAuthFailed("the authorization server does not know PKCE with S256")
    return metadata


async def _first_document(web: Web, urls: Iterable[str], kind: type[Document]) -> Document | None:
    """Return the first of these documents that is there and makes sense."""
    for url in urls:
        answer = await web.get(url, DOCUMENT_HEADERS)
        if answer.status == 429 or answer.status >= 500:
            # That a server is not well says nothing about what it would say.
            text = f"the authorization metadata cannot be had: HTTP {answer.status}"
            raise OAuthUnavailable(text)
        if answer.status == 200:
            with suppress(ValidationError):
                return kind.model_validate_json(answer.body)
    return None


def _refusal(what: str, answer: WebAnswer) -> OAuthFailed:
    word = ""
    try:
        body = from_json(answer.body)
    except ValueError:
        body = None
    if isinstance(body, dict):
        word = _error_word(body.get("error"))
    text = f"{what} was refused: HTTP {answer.status}{f' {word}' if word else ''}"
    if answer.status == 429 or answer.status >= 500:
        return OAuthUnavailable(text)
    return GrantRefused(text) if word in FINAL_WORDS else OAuthFailed(text)


def _error_word(value: object) -> str:
    """Return an error code of OAuth, or nothing when it is none."""
    return value if isinstance(value, str) and ERROR_WORD.fullmatch(value) else ""
