"""plugin/*: what marketplaces offer, what is installed, installing and removing it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path, PurePosixPath

import anyio.to_thread

from app_server.extensions.plugins.git_source import BadSource, GitSource, parse_git_source, pinned
from app_server.extensions.plugins.manifest import Plugin, read_plugin
from app_server.extensions.plugins.marketplace import Marketplace, MarketplaceEntry
from app_server.extensions.plugins.store import PluginId
from app_server.handlers.integrations.plugin_sources import (
    fetched,
    find_marketplace,
    hosted,
    plugin_failures,
    put_into_effect,
    read_marketplaces,
    read_plugin_config,
)
from app_server.handlers.integrations.plugin_views import (
    PluginViews,
    apps_needing_auth,
    declared_apps,
)
from app_server.handlers.services import Services
from app_server.handlers.serving import RequestContext, serves
from app_server.runtime.files.opening import BrokenFiles, inside
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
    PluginReconcileParams,
    PluginReconcileResponse,
    PluginUninstallParams,
    PluginUninstallResponse,
)
from protocol.jsonrpc.errors import invalid_request


@serves("plugin/list")
async def list_plugins(context: RequestContext, params: PluginListParams) -> PluginListResponse:
    """List what local marketplaces offer; other kinds have nothing here."""
    if params.marketplace_kinds is not None and "local" not in params.marketplace_kinds:
        return PluginListResponse(marketplaces=[])
    entries, errors = await _entries(context.services, params.cwds)
    return PluginListResponse(marketplaces=entries, marketplace_load_errors=errors)


@serves("plugin/installed")
async def list_installed_plugins(
    context: RequestContext, params: PluginInstalledParams
) -> PluginInstalledResponse:
    """List installed plugins of the marketplaces that are found."""
    wanted = params.install_suggestion_plugin_names or []
    entries, errors = await _entries(context.services, params.cwds, wanted)
    return PluginInstalledResponse(marketplaces=entries, marketplace_load_errors=errors)


async def _entries(
    services: Services, folders: Sequence[str] | None, wanted: Sequence[str] | None = None
) -> tuple[list[PluginMarketplaceEntry], list[MarketplaceLoadErrorInfo]]:
    config = await read_plugin_config(services)
    found, errors = await read_marketplaces(services, config, folders)
    views = await _views(services)
    return await anyio.to_thread.run_sync(views.entries, found, wanted), errors


@serves("plugin/read")
async def describe_plugin(context: RequestContext, params: PluginReadParams) -> PluginReadResponse:
    """Return details of one plugin of a local marketplace."""
    marketplace, entry = await _entry(context.services, "plugin/read", params)
    # What is fetched from elsewhere is shown as far as its marketplace does.
    is_here = isinstance(entry.source, LocalPluginSource)
    plugin = await _plugin(entry) if is_here else None
    apps = await declared_apps(context.services, () if plugin is None else plugin.app_ids)
    views = await _views(context.services)
    detail = await anyio.to_thread.run_sync(views.detail, marketplace, entry, plugin, apps)
    return PluginReadResponse(plugin=detail)


@serves("plugin/install")
async def install_plugin(
    context: RequestContext, params: PluginInstallParams
) -> PluginInstallResponse:
    """Copy a plugin here, switch it on, and give it to loaded threads after the answer."""
    marketplace, entry = await _entry(context.services, "plugin/install", params)
    if entry.install_policy == "NOT_AVAILABLE":
        raise invalid_request(
            f"plugin `{entry.name}` is not available for install in marketplace "
            f"`{marketplace.name}`",
            "pluginInvalid",
        )
    async with _fetched(context.services, entry) as plugin:
        return await _install(context, marketplace, entry, plugin)


async def _install(
    context: RequestContext, marketplace: Marketplace, entry: MarketplaceEntry, plugin: Plugin
) -> PluginInstallResponse:
    if plugin.name != entry.name:
        raise invalid_request(
            f"plugin.json name `{plugin.name}` does not match marketplace plugin name "
            f"`{entry.name}`",
            "pluginInvalid",
        )
    id_ = PluginId(marketplace.name, entry.name)
    async with context.services.plugins.changing:
        with plugin_failures():
            install = context.services.plugins.store.install
            await anyio.to_thread.run_sync(install, plugin.root, id_, plugin.version)
            await context.services.config_file.write(("plugins", str(id_), "enabled"), True)
        await put_into_effect(context)
    needing = await apps_needing_auth(context.services, plugin.app_ids)
    return PluginInstallResponse(auth_policy=entry.auth_policy, apps_needing_auth=needing)


@serves("plugin/uninstall")
async def uninstall_plugin(
    context: RequestContext, params: PluginUninstallParams
) -> PluginUninstallResponse:
    """Take a plugin away, from loaded threads after the answer."""
    try:
        id_ = PluginId.parse(params.plugin_id)
    except ValueError:
        raise hosted("resolve remote plugin before uninstall") from None
    async with context.services.plugins.changing:
        with plugin_failures():
            await context.services.config_file.remove(("plugins", str(id_)))
            await anyio.to_thread.run_sync(context.services.plugins.store.remove, id_)
        await put_into_effect(context)
    return PluginUninstallResponse()


async def _views(services: Services) -> PluginViews:
    config = await read_plugin_config(services)
    installed = await anyio.to_thread.run_sync(services.plugins.store.installed)
    return PluginViews(installed, config.document)


async def _entry(
    services: Services, method: str, params: PluginReadParams | PluginInstallParams
) -> tuple[Marketplace, MarketplaceEntry]:
    path, remote = params.marketplace_path, params.remote_marketplace_name
    if (path is None) == (remote is None):
        raise invalid_request(
            f"{method} requires exactly one of marketplacePath or remoteMarketplaceName",
            "pluginInvalid",
        )
    if path is None:
        raise hosted("read remote plugin details")
    marketplace = await find_marketplace(path)
    entry = marketplace.find(params.plugin_name)
    if entry is None:
        raise invalid_request(
            f"plugin `{params.plugin_name}` was not found in marketplace `{marketplace.name}`",
            "pluginNotFound",
        )
    return marketplace, entry


@asynccontextmanager
async def _fetched(services: Services, entry: MarketplaceEntry) -> AsyncIterator[Plugin]:
    """Read a plugin; one in a repository is fetched, and is gone after the context."""
    with plugin_failures():
        if not isinstance(entry.source, GitPluginSource):
            yield await _plugin(entry)
            return
        source, folder = _repository(entry.source)
        async with fetched(services, source) as (staging, _):
            root = await anyio.to_thread.run_sync(inside, staging / "new", folder)
            yield await anyio.to_thread.run_sync(read_plugin, root)


async def _plugin(entry: MarketplaceEntry) -> Plugin:
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


@serves("plugin/reconcile")
async def reconcile_plugins(
    context: RequestContext, params: PluginReconcileParams
) -> PluginReconcileResponse:
    """Change nothing: no installed plugin is of a hosted catalog."""
    return PluginReconcileResponse(
        changed_plugins=[],
        failed_remote_plugin_ids=[],
        failed_materialization_remote_plugin_ids=[],
    )
