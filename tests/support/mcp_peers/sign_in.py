"""A client that signs in to an MCP server, and where its tokens are kept."""

import json
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlencode, urlsplit

import anyio
import anyio.to_thread

# Imported here so that no test waits for it.
import app_server.handlers.integrations.mcp
import app_server.mcp.oauth.authorization  # noqa: F401
from app_server.mcp.catalog.config import (
    HttpTransport,
    OAuthSettings,
    ServerConfig,
)
from app_server.mcp.oauth.credentials import Credential, CredentialStore
from app_server.mcp.servers.pool import ServerPool
from app_server.mcp.servers.server import McpServer
from tests.support.harness import WAIT_S, WireClient
from tests.support.mcp_peers.no_processes import NoProcesses
from tests.support.mcp_peers.oauth_peer import MARK, OAuthPeer, query_of


def table(peer: OAuthPeer, *lines: str, name: str = "web") -> str:
    return "\n".join([f"[mcp_servers.{name}]", f'url = "{peer.url}"', *lines]) + "\n"


@dataclass
class Page:
    """What the browser shows."""

    status: int
    headers: Mapping[str, str]
    text: str


async def visit(url: str, method: str = "GET", **query: str) -> Page:
    """Be the browser, without a log of what it does."""
    parts = urlsplit(url)

    def ask() -> Page:
        connection = HTTPConnection(parts.netloc, timeout=WAIT_S)
        with closing(connection):
            connection.request(method, f"{parts.path}?{urlencode(query)}")
            response = connection.getresponse()
            return Page(response.status, dict(response.headers.items()), response.read().decode())

    return await anyio.to_thread.run_sync(ask)


async def come_back(peer: OAuthPeer, answer: Any) -> Page:
    """Agree at the authorization server, and be sent back."""
    query = query_of(answer["authorizationUrl"])
    return await visit(query["redirect_uri"], code=peer.agree(query), state=query["state"])


async def completed(client: WireClient) -> Any:
    return (await client.wait_for("mcpServer/oauthLogin/completed"))["params"]


async def auth_status(client: WireClient, **params: Any) -> str:
    wanted = {"detail": "toolsAndAuthOnly", **params}
    (entry,) = (await client.call("mcpServerStatus/list", wanted))["data"]
    return str(entry["authStatus"])


def keep(home: Path, peer: OAuthPeer, tokens: dict[str, Any], **more: Any) -> Credential:
    """Store a credential as a sign-in would have."""
    values: dict[str, Any] = {
        "server_name": "web",
        "server_url": peer.url,
        "issuer": peer.issuer,
        "client_id": "client-1",
        "access_token": tokens["access_token"],
        "refresh_token": tokens.get("refresh_token"),
        "expires_at": time.time_ns() // 1_000_000 + 3_600_000,
        **more,
    }
    credential = Credential(**values)
    CredentialStore(home, "file").save(credential)
    return credential


def stored(home: Path) -> Any:
    return json.loads((home / ".credentials.json").read_text())


SOON = {"expires_at": 1}


class FakeKeyring(ModuleType):
    """A keyring that keeps passwords in a dictionary, or is broken."""

    def __init__(self) -> None:
        super().__init__("keyring")
        self.kept: dict[tuple[str, str], str] = {}
        self.broken = False

    def get_keyring(self) -> "FakeKeyring":
        return self

    def get_password(self, service: str, name: str) -> str | None:
        if self.broken:
            raise RuntimeError(MARK)
        return self.kept.get((service, name))

    def set_password(self, service: str, name: str, password: str) -> None:
        if self.broken:
            raise RuntimeError(MARK)
        self.kept[service, name] = password


def fresh_server(peer: OAuthPeer, home: Path | None, **more: Any) -> McpServer:
    transport = HttpTransport(peer.url, oauth=OAuthSettings(home=home), **more)
    return McpServer(ServerConfig("web", transport), ServerPool(NoProcesses()), lambda *_: None)
