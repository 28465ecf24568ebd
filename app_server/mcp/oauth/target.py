"""The server that is signed in to; light: the network and the MCP SDK are imported with a use.

Source: docs/mcp.md, "Sign-in"; docs/environments.md, "Servers in an environment".
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from app_server.mcp.catalog.config import LOCAL, HttpTransport, ServerConfig
from app_server.mcp.errors import OAuthUnavailable
from app_server.mcp.oauth.credentials import Credential, CredentialStore, credential_key
from app_server.mcp.processes import Processes
from app_server.runtime.loader import LoadFailed, load

if TYPE_CHECKING:
    from app_server.mcp.oauth.authorization import AuthorizationServer
    from app_server.mcp.oauth.web import Web

Discover: TypeAlias = "Callable[[Web, str, str | None], Awaitable[AuthorizationServer | None]]"
"""Finds an authorization server (`app_server.mcp.oauth.authorization.discover`)."""


@dataclass(frozen=True, slots=True)
class SignInTarget:
    """A server behind a URL."""

    name: str
    transport: HttpTransport
    environment_id: str = LOCAL
    """The environment from which it is reached; the same URL is another server in another one."""
    processes: Processes | None = None
    """Has the connections of other environments; None: there are none."""

    @classmethod
    def of(cls, config: ServerConfig, http: HttpTransport, processes: Processes) -> "SignInTarget":
        """Take a server of the catalogue, whose transport this is."""
        return cls(config.name, http, config.environment_id, processes)

    @property
    def key(self) -> str:
        """The name of its credential in every store."""
        return credential_key(self.name, self.transport.url, self.environment_id)

    def load(self, store: CredentialStore) -> Credential | None:
        """Return its credential; blocks, and raises as CredentialStore.load does."""
        return store.load(self.name, self.transport.url, self.environment_id)

    async def discover(self, web: "Web") -> "AuthorizationServer | None":
        """Import the MCP SDK and find the authorization server; None when the server names none.

        Raises:
            OAuthUnavailable: a server did not answer, or is not well, or the SDK cannot be imported
                now.
            OAuthFailed: what a server says contradicts itself.
        """
        try:
            discover = await load(_discover)
        except LoadFailed as exc:
            raise OAuthUnavailable(f"the sign-in cannot be loaded: {exc}") from exc
        return await discover(web, self.transport.url, self.transport.oauth.resource)


def _discover() -> Discover:
    from app_server.mcp.oauth.authorization import discover

    return discover
