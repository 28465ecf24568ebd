"""The connections of the signed-in account: one for each `ConnectionKey`.

Source: docs/apps.md, "The service".
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from app_server.apps.account import AuthPort, AuthState, Signed
from app_server.apps.connection import Connection, ConnectionPorts
from app_server.apps.files.environments import EnvironmentFiles, Machines
from app_server.apps.files.files import FileSupport
from app_server.apps.files.upload import Uploads, UploadTarget
from app_server.apps.inventory.cache import CacheIdentity, InventoryCache
from app_server.apps.settings import AppsSettings
from app_server.apps.upstream.bearer import Bearer
from app_server.apps.upstream.endpoint import debug_token, upstream_target

MAX_CONNECTIONS = 8
"""Of one sign-in, for settings that differ; the one that was longest without use makes room."""


@dataclass(frozen=True, slots=True)
class ConnectionKey:
    """The settings and the account of a connection; another key opens another connection."""

    url: str
    sku: str | None
    elicitation: bool
    identity: CacheIdentity
    revision: int
    """Of the credentials."""


class Connections:
    """Connections by their key, the one that was used last at the end."""

    def __init__(
        self,
        home: Path,
        auth: AuthPort,
        machines: Machines | None,
        base_url: str | None,
        environ: Mapping[str, str],
    ) -> None:
        """Make none yet; see AppsService.

        Raises:
            BadDebugToken: the variable with the debug token makes no sense.
        """
        self._home = home
        self._auth = auth
        self._files = None if machines is None else EnvironmentFiles(machines)
        self._base_url = base_url
        self._debug_token = debug_token(environ)
        self._by_key: OrderedDict[ConnectionKey, Connection] = OrderedDict()

    def find(
        self, settings: AppsSettings, ports: ConnectionPorts, *, make: bool
    ) -> Connection | None:
        """Find or make the connection for settings and the present sign-in; None without apps."""
        state = self._auth.current()
        who = state.credentials
        if not settings.enabled or who is None or not who.is_chatgpt:
            return None
        base_url = self._base_url or settings.base_url
        target = upstream_target(
            base_url,
            self._debug_token or Bearer(self._auth, state.revision),
            account_id=who.account_id,
            sku=settings.sku,
            elicitation=settings.auth_elicitation,
        )
        identity = CacheIdentity(who.account_id, who.chatgpt_user_id, who.is_workspace)
        key = ConnectionKey(
            target.url, settings.sku, settings.auth_elicitation, identity, state.revision
        )
        if key in self._by_key:
            self._by_key.move_to_end(key)
            return self._by_key[key]
        if not make:
            return None
        cache = InventoryCache(self._home, identity, target.url, settings.sku)
        files: FileSupport | None = None
        if self._files is not None:
            store = UploadTarget(base_url.rstrip("/"), target.headers, target.tokens)
            files = FileSupport(self._files, Uploads(store))
        connection = self._by_key[key] = Connection(
            target,
            Signed(self._auth, state.revision),
            cache if self._debug_token is None else None,
            files,
            ports,
        )
        if len(self._by_key) > MAX_CONNECTIONS:
            self._by_key.popitem(last=False)[1].end()
        return connection

    def has(self, connection: Connection) -> bool:
        """Whether a connection is still in use."""
        return connection in self._by_key.values()

    def signed_in_or_out(self, state: AuthState) -> None:
        """End the connections of sign-ins before this one."""
        for key in [key for key in self._by_key if key.revision < state.revision]:
            self._by_key.pop(key).end()

    def end_all(self) -> None:
        """End every connection."""
        while self._by_key:
            self._by_key.popitem()[1].end()
