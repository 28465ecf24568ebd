"""Reading many plugins; one that is broken is left out alone. Blocks: call it in a worker thread.

Source: docs/plugins.md, "Installing", "Plugins of a thread".
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from app_server.extensions.contract.registration import MAX_PLUGIN_ID_CHARS
from app_server.extensions.plugins.manifest import Plugin, read_plugin
from app_server.extensions.plugins.marketplace import marketplace_file, read_marketplace
from app_server.extensions.plugins.selected_roots import SelectedRoot
from app_server.extensions.plugins.store import PluginId, PluginStore
from app_server.runtime.files.opening import BrokenFiles
from protocol.integrations.plugins import LocalPluginSource

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
