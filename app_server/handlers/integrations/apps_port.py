"""Port of the apps service for request handlers; the service satisfies it without knowing it."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from app_server.apps.inventory.directory import AppDetails
from app_server.apps.inventory.inventory import Connector
from app_server.apps.upstream.backend import KnownDirectory
from app_server.apps.upstream.outbound import Account, Backend
from app_server.handlers.integrations.app_servers import AppServers
from protocol.integrations.apps import AppInfo


class AppsSnapshot(Protocol):
    """A share in one generation of apps, which is served until it is given back."""

    @property
    def is_live(self) -> bool:
        """Whether the endpoint said so since the server began; else it is what the disk kept."""

    @property
    def apps(self) -> Sequence[Connector]:
        """The connectors with a real tool, by id."""

    def missing(self, app_ids: Sequence[str]) -> Sequence[str]:
        """Return those of these apps that the account has not linked, in their order."""

    def release(self) -> None:
        """Give it back; called once."""


class BackendPort(Protocol):
    """Port to ChatGPT's data on apps beside their tools (app_server/apps/upstream/backend.py)."""

    async def workspace_allows(self, backend: Backend) -> bool:
        """Whether the account's workspace lets it use apps; yes if that cannot be found out."""

    async def known_directory(self, backend: Backend) -> KnownDirectory | None:
        """Return the directory as far as it is known here, without any request."""

    async def directory(self, backend: Backend, *, refetch: bool) -> Sequence[AppInfo]:
        """Return the directory, or raise AppsUnavailable."""

    async def details(
        self, backend: Backend, ids: Sequence[str], *, tools: bool
    ) -> Mapping[str, AppDetails]:
        """Return what there is to show about apps, by id, or raise AppsUnavailable."""


class AppsService(Protocol):
    """The apps of the account that is signed in. `config` is config.toml with what lies on top."""

    def current_snapshot(self, config: Mapping[str, Any]) -> AppsSnapshot | None:
        """Return what is published for these settings and this account; never waits."""

    async def snapshot_allowing_cached(self, config: Mapping[str, Any]) -> AppsSnapshot | None:
        """Return the first that can be had, cached or live; None where there are no apps.

        Raises:
            AppsUnavailable: none can be had now.
        """

    async def snapshot(self, config: Mapping[str, Any]) -> AppsSnapshot | None:
        """Return the freshest that can be had; None where there are no apps.

        Raises:
            AppsUnavailable: nothing was published before, and nothing can be now.
        """

    async def refresh_snapshot(self, config: Mapping[str, Any]) -> AppsSnapshot | None:
        """Fetch the tools again, and return what was published then; None where there are no apps.

        Raises:
            AppsUnavailable: what was published before stays.
        """

    async def known_connectors(self, config: Mapping[str, Any]) -> Sequence[Connector]:
        """Return the connectors with a real tool as last published or kept on disk, by id.

        Asks nobody, and is the same whether these settings allow apps or not.

        Raises:
            AppsUnavailable: what knows them cannot be loaded now.
        """


class AppsPort(AppServers, Protocol):
    """Apps, for requests that clients make.

    `value` is what is served now, `get` has it served first (app_server/apps/lazy.py).
    """

    @property
    def value(self) -> AppsService | None:
        """The apps service as it runs now, None if it does not; never waits."""

    async def get(self) -> AppsService | None:
        """Return the apps service, started if need be; None without an account that has apps.

        Raises:
            AppsUnavailable: they cannot be served now.
        """

    @property
    def backend(self) -> BackendPort:
        """ChatGPT's answers."""

    async def settled(self) -> None:
        """Wait until it is known whose apps they are; bounded.

        Raises:
            AppsUnavailable: it is not known by then, or cannot be found out now.
        """

    @property
    def base_url(self) -> str | None:
        """URL that overrides the configured address of ChatGPT; None without."""

    def account(self) -> Account | None:
        """Return the account that is signed in; None unless it is one of ChatGPT."""

    def plugin_names(
        self, config: Mapping[str, Any], thread_id: str | None = None
    ) -> Mapping[str, Sequence[str]]:
        """Return the plugins that declare a connector, by its id; a thread may have some more."""
