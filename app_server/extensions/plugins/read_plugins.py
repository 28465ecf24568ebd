"""Reading many plugins; one that is broken is left out alone. Blocks: call it in a worker thread.

Source: docs/plugins.md, "Installing", "Plugins of a thread", "Suggestions of the model".
"""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from app_server.extensions.contract.registration import MAX_PLUGIN_ID_CHARS
from app_server.extensions.plugins.manifest import Plugin, read_plugin
from app_server.extensions.plugins.marketplace import (
    Marketplace,
    MarketplaceEntry,
    configured_roots,
    marketplace_file,
    marketplace_files,
    read_marketplace,
)
from app_server.extensions.plugins.selected_roots import SelectedRoot
from app_server.extensions.plugins.store import PluginId, PluginStore
from app_server.runtime.files.opening import BrokenFiles
from protocol.integrations.plugins import LocalPluginSource
from protocol.integrations.suggestions import SuggestedPlugin

logger = logging.getLogger(__name__)

LOCAL = "local"
"""The environment whose files are on this machine."""

MAX_SELECTED = 32
"""Folders of one thread; those behind them are left out."""


def read_installed(folders: Mapping[PluginId, Path]) -> Mapping[str, Plugin]:
    """Read installed plugins, by id; problems are logged."""
    found: dict[str, Plugin] = {}
    for id_, folder in folders.items():
        try:
            plugin = read_plugin(folder)
        except (BrokenFiles, OSError, ValueError) as exc:
            logger.warning("plugin %s cannot be loaded: %s", id_, exc)
            continue
        found[str(id_)] = plugin
        for problem in plugin.problems:
            logger.warning("plugin %s: %s", id_, problem)
    return dict(sorted(found.items()))


def read_selected(
    roots: Sequence[SelectedRoot],
) -> tuple[Sequence[tuple[SelectedRoot, Plugin]], Sequence[tuple[SelectedRoot, str]]]:
    """Read the plugins of folders; returns plugins and problems, each with its folder."""
    found, problems = [], []
    for index, root in enumerate(roots):
        try:
            if not root.id.strip() or len(root.id) > MAX_PLUGIN_ID_CHARS:
                raise BrokenFiles(f"its id must have 1 to {MAX_PLUGIN_ID_CHARS} characters")
            if index >= MAX_SELECTED:
                raise BrokenFiles(f"a thread has at most {MAX_SELECTED}")
            if root.environment_id != LOCAL:
                raise BrokenFiles(f"environment `{root.environment_id}` cannot be read from here")
            if not Path(root.path).is_absolute():
                raise BrokenFiles("its path is not absolute")
            plugin = read_plugin(Path(root.path))
        except (BrokenFiles, OSError, ValueError) as exc:
            problems.append((root, f"cannot be loaded: {exc}"))
            continue
        found.append((root, plugin))
        problems += [(root, problem) for problem in plugin.problems]
    return found, problems


def install_again(store: PluginStore, root: Path) -> None:
    """Update installed plugins from a changed marketplace; failures are logged.

    A plugin that it does not have any more, or that is in another repository, stays as it is.
    """
    marketplace = read_marketplace(marketplace_file(root))
    for id_ in store.installed():
        entry = marketplace.find(id_.name) if id_.marketplace == marketplace.name else None
        if entry is None or not isinstance(entry.source, LocalPluginSource):
            continue
        try:
            plugin = read_plugin(Path(entry.source.path))
            store.install(plugin.root, id_, plugin.version)
        except (BrokenFiles, OSError) as exc:
            logger.warning("plugin %s cannot be installed again: %s", id_, exc)


def read_candidates(
    store: PluginStore, config: Mapping[str, Any], wanted: Collection[str], user_home: Path
) -> list[SuggestedPlugin]:
    """Return the plugins of these ids that could be installed now, by name.

    One that cannot be read is left out and logged. Of two of one id the first counts.
    """
    installed = {str(id_) for id_ in store.installed()}
    found: dict[str, SuggestedPlugin] = {}
    roots = [user_home, *configured_roots(config, store.clones.root).values()]
    for marketplace in _marketplaces(roots):
        for entry in marketplace.entries:
            id_ = str(PluginId(marketplace.name, entry.name))
            if id_ not in wanted or id_ in installed or id_ in found:
                continue
            if entry.install_policy == "NOT_AVAILABLE":
                continue
            try:
                found[id_] = _candidate(id_, entry)
            except BrokenFiles as exc:
                logger.warning("plugin %s cannot be suggested: %s", id_, exc)
    return sorted(found.values(), key=lambda plugin: (plugin.name, plugin.id))


def _marketplaces(roots: Sequence[Path]) -> Iterator[Marketplace]:
    for file in marketplace_files(roots):
        try:
            yield read_marketplace(file)
        except BrokenFiles as exc:
            logger.warning("%s", exc)


def _candidate(id_: str, entry: MarketplaceEntry) -> SuggestedPlugin:
    if not isinstance(entry.source, LocalPluginSource):
        # What it brings is known once it has been fetched.
        return SuggestedPlugin(id=id_, name=entry.name)
    plugin = read_plugin(Path(entry.source.path))
    return SuggestedPlugin(
        id=id_,
        name=entry.name,
        description=plugin.description,
        has_skills=bool(plugin.skills),
        mcp_server_names=sorted(plugin.servers),
        app_connector_ids=list(plugin.app_ids),
    )
