"""Plugins that marketplaces have and that are not installed, as a model is shown them.

Everything here blocks: call it in a worker thread.
Source: docs/plugins.md, "Suggestions of the model".
"""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from app_server.extensions.plugins.manifest import read_plugin
from app_server.extensions.plugins.marketplace import (
    Marketplace,
    MarketplaceEntry,
    configured_roots,
    marketplace_files,
    read_marketplace,
)
from app_server.extensions.plugins.store import PluginId, PluginStore
from app_server.runtime.files.opening import BrokenFiles
from protocol.integrations.plugins import LocalPluginSource
from protocol.integrations.suggestions import SuggestedPlugin

logger = logging.getLogger(__name__)


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
