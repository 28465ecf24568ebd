"""Finding the authorization server of an MCP server.

Source: RFC 9728 and RFC 8414; MCP 2025-06-18, "Authorization"; docs/mcp.md, "Sign-in".
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlsplit

import httpx2
from mcp.client.auth.utils import (
    build_oauth_authorization_server_metadata_discovery_urls,
    build_protected_resource_metadata_discovery_urls,
    extract_resource_metadata_from_www_auth,
    extract_scope_from_www_auth,
    get_client_metadata_scopes,
    issuers_match,
)
from mcp.shared.auth import OAuthMetadata, ProtectedResourceMetadata
from mcp.shared.auth_utils import check_resource_allowed, resource_url_from_server_url
from pydantic import BaseModel, ValidationError

from app_server.mcp.errors import OAuthFailed, OAuthUnavailable
from app_server.mcp.oauth.web import Web

GRANTS = ["authorization_code", "refresh_token"]
PROBE_HEADERS = {"accept": "application/json, text/event-stream"}
PING_HEADERS = {**PROBE_HEADERS, "content-type": "application/json"}
PING = b'{"jsonrpc":"2.0","id":0,"method":"ping"}'
DOCUMENT_HEADERS = {"accept": "application/json", "mcp-protocol-version": "2025-06-18"}

Document = TypeVar("Document", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Discovered:
    """The authorization server of an MCP server, and the resource and scope of its tokens."""

    metadata: OAuthMetadata
    resource: str
    """The `resource` of token requests (RFC 8707)."""
    scope: str | None
    """Scopes that the server asks for or offers, divided by blanks."""

    @property
    def issuer(self) -> str:
        """The authorization server's name."""
        return str(self.metadata.issuer)


async def discover(
    web: Web, server_url: str, configured_resource: str | None = None
) -> Discovered | None:
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
    return Discovered(metadata, resource, scope)


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
