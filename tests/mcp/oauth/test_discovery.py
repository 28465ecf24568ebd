"""oauth: where the metadata of an authorization server is."""

# Imported here so that no test waits for it.
import httpx2
import pytest

import app_server.handlers.integrations.mcp
import app_server.mcp.oauth.authorization  # noqa: F401
from app_server.mcp.catalog.config import HttpTransport
from app_server.mcp.errors import OAuthFailed, OAuthUnavailable
from app_server.mcp.oauth.authorization import discover
from app_server.mcp.oauth.target import SignInTarget
from app_server.mcp.oauth.web import Web, open_web
from tests.support.mcp_peers.oauth_peer import PRM, OAuthPeer


def server_at(url: str) -> SignInTarget:
    return SignInTarget("web", HttpTransport(url))


async def found_at(peer: OAuthPeer) -> tuple[str, str, str | None] | None:
    async with open_web(server_at(peer.url)) as web:
        found = await discover(web, peer.url)
    return None if found is None else (found.issuer, found.resource, found.scope)


async def test_metadata_is_looked_for_where_it_may_be() -> None:
    async with OAuthPeer().serve() as peer:
        named = peer.documents[f"{PRM}/mcp"]
        own = peer.metadata(issuer=peer.origin)
        asked = (peer.issuer, peer.url, "a b")
        assert await found_at(peer) == asked
        peer.challenges_get = False
        peer.named = "/elsewhere"
        peer.documents["/elsewhere"] = peer.documents.pop(f"{PRM}/mcp")
        assert await found_at(peer) == asked
        # A name on another machine is not followed.
        peer.named = "@evil.example/x"
        peer.documents[f"{PRM}/mcp"] = named
        assert await found_at(peer) == asked
        peer.challenge = False
        usual = (peer.issuer, peer.url, "read write")
        assert await found_at(peer) == usual
        peer.documents = {PRM: named, "/.well-known/openid-configuration/as": peer.metadata()}
        assert await found_at(peer) == usual
        peer.documents = {PRM: named, "/as/.well-known/openid-configuration": peer.metadata()}
        assert await found_at(peer) == usual
        # Older servers are their own authorization servers.
        for path in ("oauth-authorization-server", "openid-configuration"):
            peer.documents = {f"/.well-known/{path}": own}
            assert await found_at(peer) == (peer.origin, peer.url, None)
        peer.requests.clear()
        peer.documents = {PRM: {"nonsense": 1}, "/.well-known/openid-configuration": []}
        assert await found_at(peer) is None
        assert [path for _, path, _ in peer.requests] == [
            f"{PRM}/mcp",
            PRM,
            "/.well-known/oauth-authorization-server/mcp",
            "/.well-known/oauth-authorization-server",
            "/.well-known/openid-configuration/mcp",
            "/mcp/.well-known/openid-configuration",
            "/.well-known/openid-configuration",
        ]


async def test_metadata_that_contradicts_itself_is_refused() -> None:
    async with OAuthPeer().serve() as peer:
        path = "/.well-known/oauth-authorization-server/as"
        for change, words in (
            ({"issuer": "https://evil.example"}, "names another issuer"),
            ({"token_endpoint": "http://far.example/t"}, "an address that is not allowed"),
            ({"code_challenge_methods_supported": ["plain"]}, "PKCE with S256"),
            ({"service_documentation": "https://x/" + "y" * 300_000}, "is larger than"),
        ):
            peer.documents[path] = peer.metadata(**change)
            with pytest.raises(OAuthFailed, match=words):
                await found_at(peer)
        peer.documents[path] = 500
        with pytest.raises(OAuthUnavailable, match="HTTP 500"):
            await found_at(peer)
        peer.documents[f"{PRM}/mcp"]["resource"] = "https://other.example/"
        with pytest.raises(OAuthFailed, match="that of another resource"):
            await found_at(peer)
        peer.documents[f"{PRM}/mcp"] = peer.documents[PRM] = {
            "resource": peer.url,
            "authorization_servers": ["http://192.0.2.1/"],
        }
        with pytest.raises(OAuthFailed, match="an address that the server names is not allowed"):
            await found_at(peer)


async def test_addresses_are_visited_only_where_they_make_sense() -> None:
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(redirecting)) as client:
        far = Web(client, "http://tools.example:8/mcp", {"x-own": "1"})
        near = Web(client, "http://127.0.0.1:8/mcp", {})
        for web, url, allowed in (
            (far, "https://login.example/x", True),
            (far, "http://tools.example:8/x", True),
            (far, "http://tools.example/x", False),
            (far, "http://login.example/x", False),
            (far, "https://127.0.0.1/x", False),
            (far, "https://localhost/x", False),
            (far, "file:///etc/passwd", False),
            (far, "http://x:port", False),
            (near, "http://localhost:1/x", True),
            (near, "http://[::1]:1/x", True),
            (near, "https://login.example/x", True),
            (near, "http://login.example/x", False),
        ):
            assert web.may_visit(url) is allowed, url
        # Redirects stay within an origin, and so do the headers of the server.
        answer = await far.get("http://tools.example:8/within", {})
        assert (answer.status, answer.body) == (200, b"own: 1")
        answer = await far.get("https://login.example/within", {})
        assert (answer.status, answer.body) == (200, b"own: ")
        assert (await far.get("http://tools.example:8/away", {})).status == 307
        assert (await far.get("http://tools.example:8/round", {})).status == 307
        assert (await far.post("http://tools.example:8/within", {}, b"")).status == 307
        with pytest.raises(OAuthUnavailable, match=r"^cannot reach http://tools.example:8/dead:"):
            await far.get("http://u:p@tools.example:8/dead?k=v", {})
    with pytest.raises(OAuthFailed, match="makes no sense"):
        async with open_web(server_at("http://x:port")):
            pass


def redirecting(request: httpx2.Request) -> httpx2.Response:
    if request.url.path == "/dead":
        raise httpx2.ConnectError("no")
    places = {"/within": "/there", "/away": "https://evil.example/", "/round": "/round"}
    if (place := places.get(request.url.path)) is not None:
        return httpx2.Response(307, headers={"location": place})
    return httpx2.Response(200, text=f"own: {request.headers.get('x-own', '')}")
