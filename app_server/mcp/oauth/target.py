"""The server that is signed in to.

Source: docs/mcp.md, "Sign-in"; docs/environments.md, "Servers in an environment".
"""

from dataclasses import dataclass

from app_server.mcp.catalog.config import LOCAL, HttpTransport, ServerConfig
from app_server.mcp.oauth.credentials import Credential, CredentialStore, credential_key
from app_server.mcp.processes import Processes


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
