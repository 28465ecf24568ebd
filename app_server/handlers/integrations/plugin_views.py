"""Plugins and their apps as clients see them. Reads files: call it in a worker thread.

Source: docs/plugins.md, "Apps".
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from app_server.apps.account import AppsUnavailable
from app_server.apps.inventory.names import install_url
from app_server.extensions.hooks.definition import WIRE, Origin
from app_server.extensions.hooks.hook_files import HookFile, HookList, add_hooks
from app_server.extensions.plugins.contributor import read_declarations
from app_server.extensions.plugins.manifest import Plugin, read_plugin
from app_server.extensions.plugins.marketplace import Marketplace, MarketplaceEntry
from app_server.extensions.plugins.store import PluginId
from app_server.handlers.integrations.app_terms import AppTerms, apps_failures, read_terms
from app_server.handlers.integrations.apps_port import AppsPort
from app_server.handlers.integrations.plugin_sources import is_enabled
from app_server.handlers.services import Services
from app_server.runtime.files.opening import BrokenFiles
from protocol.integrations.plugins import (
    AppSummary,
    LocalPluginSource,
    MarketplaceInterface,
    PluginDetail,
    PluginHookSummary,
    PluginInterface,
    PluginMarketplaceEntry,
    PluginSummary,
    SkillSummary,
)

logger = logging.getLogger(__name__)


class PluginViews:
    """Views for one request."""

    def __init__(self, installed: Mapping[PluginId, Path], config: Mapping[str, Any]) -> None:
        self._installed = installed
        self._config = config

    def entries(
        self, marketplaces: Sequence[Marketplace], wanted: Sequence[str] | None = None
    ) -> list[PluginMarketplaceEntry]:
        """Show marketplaces that have plugins.

        With `wanted` only plugins that are installed, or have one of these names.
        """
        shown = []
        for one in marketplaces:
            chosen = [
                self.summary(one, entry, self.plugin_of(entry))
                for entry in one.entries
                if wanted is None
                or entry.name in wanted
                or PluginId(one.name, entry.name) in self._installed
            ]
            if chosen:
                interface = one.display_name and MarketplaceInterface(display_name=one.display_name)
                shown.append(
                    PluginMarketplaceEntry(
                        name=one.name,
                        path=str(one.file),
                        interface=interface or None,
                        plugins=chosen,
                    )
                )
        return shown

    def plugin_of(self, entry: MarketplaceEntry) -> Plugin | None:
        """Read the plugin of an entry; None if it is elsewhere, or broken."""
        if not isinstance(entry.source, LocalPluginSource):
            return None
        try:
            return read_plugin(Path(entry.source.path))
        except (BrokenFiles, OSError) as exc:
            logger.debug("plugin %s cannot be read: %s", entry.name, exc)
            return None

    def summary(
        self, of: Marketplace, entry: MarketplaceEntry, plugin: Plugin | None
    ) -> PluginSummary:
        """Show a plugin as a marketplace lists it, and its state here."""
        id_ = PluginId(of.name, entry.name)
        is_installed = id_ in self._installed
        return PluginSummary(
            id=str(id_),
            local_version=None if plugin is None else plugin.version,
            name=entry.name,
            source=entry.source,
            installed=is_installed,
            enabled=is_installed and is_enabled(self._config, str(id_)),
            install_policy=entry.install_policy,
            auth_policy=entry.auth_policy,
            interface=_interface(entry, plugin),
            keywords=[] if plugin is None else list(plugin.keywords),
        )

    def detail(
        self,
        of: Marketplace,
        entry: MarketplaceEntry,
        plugin: Plugin | None,
        apps: Sequence[AppSummary],
    ) -> PluginDetail:
        """Show all there is to show about a plugin."""
        return PluginDetail(
            marketplace_name=of.name,
            marketplace_path=str(of.file),
            summary=self.summary(of, entry, plugin),
            description=None if plugin is None else plugin.description,
            skills=[] if plugin is None else _skills(plugin),
            hooks=[] if plugin is None else _hooks(PluginId(of.name, entry.name), plugin),
            apps=list(apps),
            app_templates=[],
            mcp_servers=[] if plugin is None else sorted(plugin.servers),
        )


def _skills(plugin: Plugin) -> list[SkillSummary]:
    return [
        SkillSummary(
            name=f"{plugin.name}:{skill.name}",
            description=skill.description,
            path=str(skill.file),
            enabled=True,
        )
        for skill in plugin.skills
    ]


def _hooks(id_: PluginId, plugin: Plugin) -> list[PluginHookSummary]:
    found = HookList()
    for name, file, hooks in read_declarations(plugin.root)[0]:
        # It may not be installed yet, so there is nothing to trust.
        origin = Origin(str(id_), name, plugin.root, data=plugin.root, fingerprint="")
        add_hooks(found, hooks, HookFile(file, "plugin", origin))
    return [PluginHookSummary(key=hook.key, event_name=WIRE[hook.event]) for hook in found.hooks]


def _interface(entry: MarketplaceEntry, plugin: Plugin | None) -> PluginInterface | None:
    shown = None if plugin is None else plugin.interface
    if entry.category is None:
        return shown
    if shown is None:
        return PluginInterface(
            category=entry.category, capabilities=[], screenshots=[], screenshot_urls=[]
        )
    return shown.model_copy(update={"category": entry.category})


logger = logging.getLogger(__name__)


async def declared_apps(services: Services, app_ids: Sequence[str]) -> list[AppSummary]:
    """Return summaries of apps, sorted by name, without a request; none where apps are off."""
    if not app_ids or services.apps is None:
        return []
    with apps_failures():
        terms = await read_terms(services, services.apps, None)
    return await _shown(services.apps, terms, app_ids)


async def apps_needing_auth(services: Services, app_ids: Sequence[str]) -> list[AppSummary]:
    """Show the apps that the account has not linked; none if that cannot be known."""
    if not app_ids or services.apps is None:
        return []
    try:
        terms = await read_terms(services, services.apps, None)
        if terms.backend is None:
            return []
        apps = await services.apps.get()
        snapshot = None if apps is None else await apps.snapshot_allowing_cached(terms.config)
    except AppsUnavailable as exc:
        logger.warning("which apps of a plugin need a sign-in is not known: %s", exc)
        return []
    if snapshot is None:
        logger.warning("which apps of a plugin need a sign-in is not known")
        return []
    try:
        missing = snapshot.missing(app_ids)
    finally:
        snapshot.release()
    return await _shown(services.apps, terms, missing)


async def _shown(apps: AppsPort, terms: AppTerms, app_ids: Sequence[str]) -> list[AppSummary]:
    if terms.backend is None:
        return []
    directory = await apps.backend.known_directory(terms.backend)
    known = {app.id: app for app in (directory.apps if directory is not None else ())}
    shown = []
    for id_ in app_ids:
        app = known.get(id_)
        name = id_ if app is None else app.name
        description = None if app is None else app.description
        url = install_url(name, id_)
        shown.append(AppSummary(id=id_, name=name, description=description, install_url=url))
    return sorted(shown, key=lambda app: (app.name, app.id))
