"""An MCP server behind a sign-in, and its authorization server, for tests: one real listener.

Every secret that it hands out contains MARK, so that a test can look for it in what leaves.
"""

import base64
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, parse_qsl

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import (
    StreamableHTTPASGIApp,
    StreamableHTTPSessionManager,
)

from tests.support.mcp_peers.web_servers import listening
from tests.support.model import Gate

MARK = "mArKeD"

PRM = "/.well-known/oauth-protected-resource"


async def _list_tools(context: Any, params: Any) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[types.Tool(name="look", input_schema={"type": "object"})])


async def _look(context: Any, params: Any) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text="seen")])


@dataclass
class OAuthPeer:
    """Both servers; what they do can be changed at any time."""

    origin: str = ""
    documents: dict[str, Any] = field(default_factory=dict)
    """Path to what is served there: JSON, or a status."""
    challenge: bool = True
    """Whether a 401 names the metadata."""
    named: str = f"{PRM}/mcp"
    """The path that a 401 names."""
    challenges_get: bool = True
    """Whether a GET without a token gets a 401."""
    closed: bool = True
    """Whether a token is needed."""
    wanted: str | None = None
    """Scopes that a call of a tool is refused for the want of."""
    too_weak: set[str | None] = field(default_factory=set)
    """Authorizations that calls of tools are refused with, if there are any; else all are."""
    tokens: set[str] = field(default_factory=set)
    refresh_tokens: set[str] = field(default_factory=set)
    codes: dict[str, str] = field(default_factory=dict)
    """Code to the challenge that it was given for."""
    expires_in: int | None = 3600
    token_status: int | None = None
    """A status that the token endpoint answers instead."""
    register_status: int = 201
    registration: dict[str, Any] = field(default_factory=dict)
    """Added to the answer to a registration."""
    gates: dict[str, Gate] = field(default_factory=dict)
    """Path to where its next request waits."""
    requests: list[tuple[str, str, Any]] = field(default_factory=list)
    """Method, path and body of everything that is not for the MCP server."""
    headers: list[dict[str, str]] = field(default_factory=list)
    mcp_tokens: list[str | None] = field(default_factory=list)
    """Authorization of every POST to the MCP server."""
    given: int = 0

    @property
    def url(self) -> str:
        """Where the MCP server is."""
        return f"{self.origin}/mcp"

    @property
    def issuer(self) -> str:
        """The authorization server's name."""
        return f"{self.origin}/as"

    def publish(self) -> None:
        """Serve the usual metadata."""
        self.documents = {
            f"{PRM}/mcp": {
                "resource": self.url,
                "authorization_servers": [self.issuer],
                "scopes_supported": ["read", "write"],
            },
            "/.well-known/oauth-authorization-server/as": self.metadata(),
        }

    def metadata(self, **more: Any) -> dict[str, Any]:
        """Make authorization server metadata."""
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "registration_endpoint": f"{self.issuer}/register",
            "code_challenge_methods_supported": ["S256"],
            **more,
        }

    def agree(self, query: dict[str, str]) -> str:
        """Give a code, as if the user had agreed to what the browser was sent with."""
        self.given += 1
        code = f"code-{MARK}-{self.given}"
        self.codes[code] = query["code_challenge"]
        return code

    def posts(self, path: str) -> list[Any]:
        """Return the bodies of all POSTs to a path."""
        return [body for method, found, body in self.requests if (method, found) == ("POST", path)]

    def give(self) -> dict[str, Any]:
        """Make tokens that hold, and the answer with them."""
        self.given += 1
        access, refresh = f"access-{MARK}-{self.given}", f"refresh-{MARK}-{self.given}"
        self.tokens.add(access)
        self.refresh_tokens.add(refresh)
        answer = {"access_token": access, "token_type": "bearer", "refresh_token": refresh}
        return answer if self.expires_in is None else {**answer, "expires_in": self.expires_in}

    def _token(self, form: dict[str, str]) -> tuple[int, Any]:
        if self.token_status is not None:
            return self.token_status, {"error": "server_error", "hint": MARK}
        if form["grant_type"] == "authorization_code":
            digest = hashlib.sha256(form["code_verifier"].encode()).digest()
            proof = base64.urlsafe_b64encode(digest).decode().rstrip("=")
            if self.codes.pop(form["code"], None) == proof:
                return 200, self.give()
        elif form["refresh_token"] in self.refresh_tokens:
            # As OAuth 2.1 wants it: a refresh token works once.
            self.refresh_tokens.remove(form["refresh_token"])
            return 200, self.give()
        return 400, {"error": "invalid_grant", "error_description": f"{form} {MARK}"}

    def _answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        if path == "/as/register":
            wanted = json.loads(body)
            self.requests.append((method, path, wanted))
            return self.register_status, {**wanted, "client_id": "client-1", **self.registration}
        if path == "/as/token":
            form = dict(parse_qsl(body.decode()))
            self.requests.append((method, path, form))
            return self._token(form)
        self.requests.append((method, path, None))
        found = self.documents.get(path, 404)
        return (found, {}) if isinstance(found, int) else (200, found)

    @asynccontextmanager
    async def serve(self) -> AsyncIterator["OAuthPeer"]:
        """Listen while the context lasts."""
        manager = StreamableHTTPSessionManager(
            app=Server("web", version="1", on_list_tools=_list_tools, on_call_tool=_look),
            json_response=True,
        )
        mcp = StreamableHTTPASGIApp(manager)

        async def app(scope: Any, receive: Any, send: Any) -> None:
            path, method = scope["path"], scope["method"]
            headers = {name.decode(): value.decode() for name, value in scope["headers"]}
            if (gate := self.gates.pop(path, None)) is not None:
                gate.reached.set()
                await gate.opened.wait()
            extra: list[tuple[bytes, bytes]] = []
            if path == "/mcp":
                token = headers.get("authorization")
                if method == "POST":
                    self.mcp_tokens.append(token)
                status = 401
                found: Any = {}
                if not self.closed or (token or "").removeprefix("Bearer ") in self.tokens:
                    weak = not self.too_weak or token in self.too_weak
                    called = headers.get("mcp-method") == "tools/call"
                    if self.wanted is None or not called or not weak:
                        await mcp(scope, receive, send)
                        return
                    status = 403
                    named = f'Bearer error="insufficient_scope", scope="{self.wanted}"'
                    extra = [(b"www-authenticate", named.encode())]
                elif method == "GET" and not self.challenges_get:
                    status = 405
                elif self.challenge:
                    named = f'Bearer resource_metadata="{self.origin}{self.named}", scope="a b"'
                    extra = [(b"www-authenticate", named.encode())]
            else:
                body, more = b"", True
                while more:
                    message = await receive()
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                self.headers.append(headers)
                status, found = self._answer(method, path, body)
            content = json.dumps(found).encode()
            kind = (b"content-type", b"application/json")
            await send({"type": "http.response.start", "status": status, "headers": [kind, *extra]})
            await send({"type": "http.response.body", "body": content})

        async with manager.run(), listening(app) as port:
            self.origin = f"http://127.0.0.1:{port}"
            self.publish()
            try:
                yield self
            finally:
                for gate in self.gates.values():
                    gate.opened.set()


def query_of(url: str) -> dict[str, str]:
    """Return the parameters of an address, each once."""
    return {key: value for key, (value,) in parse_qs(url.partition("?")[2]).items()}
