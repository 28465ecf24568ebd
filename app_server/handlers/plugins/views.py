"""Plugins as clients see them. Reads their files: call it in a worker thread."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from app_server.extensions.hooks.definition import WIRE
from app_server.extensions.hooks.files import HookList, Place, add_hooks
from app_server.extensions.hooks.plugins import Origin
from app_server.extensions.plugins.hooks import read_declarations
from app_server.extensions.plugins.manifest import Plugin, read_plugin
from app_server.extensions.plugins.marketplace import Entry, Marketplace
from app_server.extensions.plugins.store import PluginId
from app_server.handlers.plugins.sources import is_enabled
from app_server.runtime.files.contained import BrokenFiles
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

    def plugin_of(self, entry: Entry) -> Plugin | None:
        """Read the plugin of an entry; None if it is elsewhere, or broken."""
        if not isinstance(entry.source, LocalPluginSource):
            return None
        try:
            return read_plugin(Path(entry.source.path))
        except (BrokenFiles, OSError) as exc:
            logger.debug("plugin %s cannot be read: %s", entry.name, exc)
            return None

    def summary(self, of: Marketplace, entry: Entry, plugin: Plugin | None) -> PluginSummary:
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
        self, of: Marketplace, entry: Entry, plugin: Plugin | None, apps: Sequence[AppSummary]
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
        add_hooks(found, hooks, Place(file, "plugin", origin))
    return [PluginHookSummary(key=hook.key, event_name=WIRE[hook.event]) for hook in found.hooks]


def _interface(entry: Entry, plugin: Plugin | None) -> PluginInterface | None:
    shown = None if plugin is None else plugin.interface
    if entry.category is None:
        return shown
    if shown is None:
        return PluginInterface(
            category=entry.category, capabilities=[], screenshots=[], screenshot_urls=[]
        )
    return shown.model_copy(update={"category": entry.category})
