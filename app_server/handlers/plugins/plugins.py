"""plugin/*: what marketplaces offer, what is installed, installing and removing it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path, PurePosixPath

import anyio.to_thread

from app_server.extensions.plugins.git_source import BadSource, GitSource, parse_git_source, pinned
from app_server.extensions.plugins.manifest import Plugin, read_plugin
from app_server.extensions.plugins.marketplace import Entry, Marketplace
from app_server.extensions.plugins.store import PluginId, PluginStore
from app_server.handlers.plugins.apps import apps_needing_auth, declared_apps
from app_server.handlers.plugins.repositories import Repositories
from app_server.handlers.plugins.sources import PluginSources, hosted, plugin_failures
from app_server.handlers.plugins.views import PluginViews
from app_server.handlers.services import Services
from app_server.rpc.context import RequestContext, Routes
from app_server.runtime.files.contained import BrokenFiles, inside
from protocol.integrations.plugins import (
    GitPluginSource,
    LocalPluginSource,
    MarketplaceLoadErrorInfo,
    PluginInstalledParams,
    PluginInstalledResponse,
    PluginInstallParams,
    PluginInstallResponse,
    PluginListParams,
    PluginListResponse,
    PluginMarketplaceEntry,
    PluginReadParams,
    PluginReadResponse,
    PluginUninstallParams,
    PluginUninstallResponse,
)
from protocol.jsonrpc.errors import invalid_request


class PluginHandlers:
    """The plugin/* methods."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._sources = PluginSources(services)
        self._repositories = Repositories(services)
        self._store: PluginStore = services.plugins.store
        self.routes: Routes = {
            "plugin/list": self.list_offered,
            "plugin/installed": self.list_installed,
            "plugin/read": self.read,
            "plugin/install": self.install,
            "plugin/uninstall": self.uninstall,
        }

    async def list_offered(
        self, context: RequestContext, params: PluginListParams
    ) -> PluginListResponse:
        """List what local marketplaces offer; other kinds have nothing here."""
        if params.marketplace_kinds is not None and "local" not in params.marketplace_kinds:
            return PluginListResponse(marketplaces=[])
        entries, errors = await self._entries(params.cwds)
        return PluginListResponse(marketplaces=entries, marketplace_load_errors=errors)

    async def list_installed(
        self, context: RequestContext, params: PluginInstalledParams
    ) -> PluginInstalledResponse:
        """List installed plugins of the marketplaces that are found."""
        wanted = params.install_suggestion_plugin_names or []
        entries, errors = await self._entries(params.cwds, wanted)
        return PluginInstalledResponse(marketplaces=entries, marketplace_load_errors=errors)

    async def _entries(
        self, folders: Sequence[str] | None, wanted: Sequence[str] | None = None
    ) -> tuple[list[PluginMarketplaceEntry], list[MarketplaceLoadErrorInfo]]:
        config = await self._sources.read_config()
        found, errors = await self._sources.marketplaces(config, folders)
        views = await self._views()
        return await anyio.to_thread.run_sync(views.entries, found, wanted), errors

    async def read(self, context: RequestContext, params: PluginReadParams) -> PluginReadResponse:
        """Read about one plugin of a local marketplace."""
        marketplace, entry = await self._entry("plugin/read", params)
        # What is fetched from elsewhere is shown as far as its marketplace does.
        is_here = isinstance(entry.source, LocalPluginSource)
        plugin = await self._plugin(entry) if is_here else None
        apps = await declared_apps(self._services, () if plugin is None else plugin.app_ids)
        views = await self._views()
        detail = await anyio.to_thread.run_sync(views.detail, marketplace, entry, plugin, apps)
        return PluginReadResponse(plugin=detail)

    async def install(
        self, context: RequestContext, params: PluginInstallParams
    ) -> PluginInstallResponse:
        """Copy a plugin here, switch it on, and give it to loaded threads after the answer."""
        marketplace, entry = await self._entry("plugin/install", params)
        if entry.install_policy == "NOT_AVAILABLE":
            raise invalid_request(
                f"plugin `{entry.name}` is not available for install in marketplace "
                f"`{marketplace.name}`",
                "pluginInvalid",
            )
        async with self._fetched(entry) as plugin:
            return await self._install(context, marketplace, entry, plugin)

    async def _install(
        self, context: RequestContext, marketplace: Marketplace, entry: Entry, plugin: Plugin
    ) -> PluginInstallResponse:
        if plugin.name != entry.name:
            raise invalid_request(
                f"plugin.json name `{plugin.name}` does not match marketplace plugin name "
                f"`{entry.name}`",
                "pluginInvalid",
            )
        id_ = PluginId(marketplace.name, entry.name)
        async with self._services.plugins.changing:
            with plugin_failures():
                install = self._store.install
                await anyio.to_thread.run_sync(install, plugin.root, id_, plugin.version)
                await self._services.config_file.write(("plugins", str(id_), "enabled"), True)
            await self._sources.take_effect(context)
        needing = await apps_needing_auth(self._services, plugin.app_ids)
        return PluginInstallResponse(auth_policy=entry.auth_policy, apps_needing_auth=needing)

    async def uninstall(
        self, context: RequestContext, params: PluginUninstallParams
    ) -> PluginUninstallResponse:
        """Take a plugin away, from loaded threads after the answer."""
        try:
            id_ = PluginId.parse(params.plugin_id)
        except ValueError:
            raise hosted("resolve remote plugin before uninstall") from None
        async with self._services.plugins.changing:
            with plugin_failures():
                await self._services.config_file.remove(("plugins", str(id_)))
                await anyio.to_thread.run_sync(self._store.remove, id_)
            await self._sources.take_effect(context)
        return PluginUninstallResponse()

    async def _views(self) -> PluginViews:
        config = await self._sources.read_config()
        installed = await anyio.to_thread.run_sync(self._store.installed)
        return PluginViews(installed, config.document)

    async def _entry(
        self, method: str, params: PluginReadParams | PluginInstallParams
    ) -> tuple[Marketplace, Entry]:
        path, remote = params.marketplace_path, params.remote_marketplace_name
        if (path is None) == (remote is None):
            raise invalid_request(
                f"{method} requires exactly one of marketplacePath or remoteMarketplaceName",
                "pluginInvalid",
            )
        if path is None:
            raise hosted("read remote plugin details")
        marketplace = await self._sources.marketplace(path)
        entry = marketplace.find(params.plugin_name)
        if entry is None:
            raise invalid_request(
                f"plugin `{params.plugin_name}` was not found in marketplace `{marketplace.name}`",
                "pluginNotFound",
            )
        return marketplace, entry

    @asynccontextmanager
    async def _fetched(self, entry: Entry) -> AsyncIterator[Plugin]:
        """Read a plugin; one in a repository is fetched, and is gone after the context."""
        with plugin_failures():
            if not isinstance(entry.source, GitPluginSource):
                yield await self._plugin(entry)
                return
            source, folder = _repository(entry.source)
            async with self._repositories.fetched(source) as (staging, _):
                root = await anyio.to_thread.run_sync(inside, staging / "new", folder)
                yield await anyio.to_thread.run_sync(read_plugin, root)

    async def _plugin(self, entry: Entry) -> Plugin:
        with plugin_failures():
            if not isinstance(entry.source, LocalPluginSource):
                raise BrokenFiles("plugins of npm packages cannot be installed")
            return await anyio.to_thread.run_sync(read_plugin, Path(entry.source.path))


def _repository(source: GitPluginSource) -> tuple[GitSource, PurePosixPath]:
    """Return where a plugin is fetched from, and its folder there."""
    try:
        repository = pinned(parse_git_source(source.url, source.ref_name), source.sha)
    except BadSource as exc:
        raise BrokenFiles(str(exc)) from exc
    folder = PurePosixPath(source.path or ".")
    if folder.is_absolute() or ".." in folder.parts:
        raise BrokenFiles("`path` leads out of the repository")
    return repository, folder
