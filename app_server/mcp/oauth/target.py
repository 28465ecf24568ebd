"""The server that is signed in to, and the way to it.

Source: docs/mcp.md, "Sign-in"; docs/environments.md, "Servers in an environment".
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from app_server.mcp.catalog.config import LOCAL, HttpTransport, ServerConfig
from app_server.mcp.errors import OAuthUnavailable
from app_server.mcp.oauth.credentials import Credential, CredentialStore, credential_key
from app_server.mcp.oauth.dialled import DialledTransport
from app_server.mcp.oauth.web import REQUEST_S, Web, open_web
from app_server.mcp.processes import Processes
from app_server.mcp.tunnel import open_dial


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

    @asynccontextmanager
    async def open_web(self) -> AsyncIterator[Web]:
        """Open the network as this server sees it; leaving closes all connections.

        Raises:
            OAuthFailed: its URL makes no sense.
            OAuthUnavailable: its environment is not known.
            ServerUnavailable: a variable with a header is not set.
        """
        url, headers = self.transport.url, self.transport.headers(self.name)
        async with AsyncExitStack() as stack:
            transport = None
            if self.environment_id != LOCAL:
                if self.processes is None or not self.processes.has(self.environment_id):
                    raise OAuthUnavailable(f"unknown environment `{self.environment_id}`")
                dialling = open_dial(self.processes, self.environment_id)
                dial = await stack.enter_async_context(dialling)
                transport = DialledTransport(dial, REQUEST_S)
            yield await stack.enter_async_context(open_web(url, headers, transport))
