"""The plugins of a process, the servers that they give threads (a Contributor), and their hooks.

What is on disk is read at the start, after a change, and when servers are reloaded; never when
servers are resolved. Light: what reads plugins is imported with the first of them.
Source: docs/plugins.md, "A plugin", "MCP servers"; docs/hooks.md, "Hooks of plugins".
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

from app_server.extensions.contract.registration import (
    ContributionContext,
    Registration,
    RuntimeMetadata,
    Tier,
)
from app_server.extensions.hooks.definition import Declaration, HookedPlugin
from app_server.extensions.plugins.file_members import read_object, relative_path
from app_server.extensions.plugins.store import PluginStore
from app_server.runtime.files.opening import BrokenFiles
from app_server.runtime.loader import load_from_worker

if TYPE_CHECKING:
    from app_server.extensions.plugins.manifest import Plugin
    from app_server.extensions.plugins.selected_roots import SelectedRoot


MAX_PROBLEMS = 64
"""Of the folders of one thread that are named."""

MAX_SHOWN_CHARS = 128
"""Of an id in a text about them."""

MAX_THREADS = 4096
"""Whose selections are remembered, and what they go without."""

ADJUSTABLE = (
    "enabled",
    "enabled_tools",
    "disabled_tools",
    "default_tools_approval_mode",
    "tools",
)
"""Keys of a server that `[plugins."ID".mcp_servers.NAME]` may change."""


@dataclass(frozen=True, slots=True)
class Active:
    """A plugin that a thread has now."""

    id: str
    plugin: "Plugin"
    tier: Tier


class Plugins:
    """Contributor of plugins, with queries for other rooms."""

    id = "plugins"

    def __init__(self, store: PluginStore, is_available: Callable[[str], bool]) -> None:
        """`is_available` says whether an environment can be used now; it never waits."""
        self.store = store
        self._is_available = is_available
        self.changing = anyio.Lock()
        """Held while something is installed, removed or configured."""
        self._installed: Mapping[str, Plugin] = {}
        self._selected: OrderedDict[str, Sequence[tuple[SelectedRoot, Plugin]]] = OrderedDict()
        self._switched_off: OrderedDict[str, frozenset[str]] = OrderedDict()
        """Ids of plugins, by the thread that goes without them."""
        self._revision = 0

    async def load(self) -> None:
        """Read the installed plugins; a broken one is logged and left out."""
        found = await anyio.to_thread.run_sync(_read_installed, self.store)
        if found != self._installed:
            self._installed = found
            self._revision += 1

    async def select(self, thread_id: str, roots: "Sequence[SelectedRoot]") -> Sequence[str]:
        """Select the plugins of folders for a thread; returns the problems of others.

        Folders in other environments cannot be read, and give nothing.
        """
        if not roots:
            return ()
        plugins, problems = await anyio.to_thread.run_sync(_read_roots, roots)
        self._selected[thread_id] = plugins
        self._selected.move_to_end(thread_id)
        if len(self._selected) > MAX_THREADS:
            self._selected.popitem(last=False)
        return problems

    def switch_off(self, thread_id: str, ids: Collection[str]) -> None:
        """Have a thread go without these plugins, and with all others; never waits.

        Its servers follow before its next model request. Without `ids` nothing is remembered of
        the thread.
        """
        wanted = frozenset(ids)
        before = self._switched_off.pop(thread_id, frozenset())
        if wanted:
            self._switched_off[thread_id] = wanted
            if len(self._switched_off) > MAX_THREADS:
                self._switched_off.popitem(last=False)
        if wanted != before:
            self._revision += 1

    def environment_changed(self) -> None:
        """Have availability looked at again, before the next model request of each thread."""
        if self._selected:
            self._revision += 1

    def active(self, config: Mapping[str, Any], thread_id: str | None = None) -> Sequence[Active]:
        """Return the plugins in force: those of the thread, then installed ones, by id."""
        if not (self._selected or self._installed) or not feature_is_on(config, "plugins"):
            return []
        off = self._switched_off.get(thread_id or "", frozenset())
        found = (*self._of_thread(thread_id), *self._enabled(config))
        return [active for active in found if active.id not in off]

    def is_installed(self, id_: str) -> bool:
        """Whether a plugin is in the home folder, switched on or not, as last read."""
        return id_ in self._installed

    def app_names(
        self, config: Mapping[str, Any], thread_id: str | None = None
    ) -> Mapping[str, Sequence[str]]:
        """Return the display names of the plugins that declare an app, by its id."""
        names: dict[str, set[str]] = {}
        for active in self.active(config, thread_id):
            for app_id in active.plugin.app_ids:
                names.setdefault(app_id, set()).add(active.plugin.display_name)
        return {app_id: sorted(found) for app_id, found in names.items()}

    def _of_thread(self, thread_id: str | None) -> Iterator[Active]:
        for root, plugin in self._selected.get(thread_id or "", ()):
            if self._is_available(root.environment_id):
                yield Active(root.id, plugin, Tier.SELECTED_PLUGIN)

    def _enabled(self, config: Mapping[str, Any]) -> Iterator[Active]:
        tables = _table(config, "plugins")
        for id_, plugin in self._installed.items():
            if id_ in tables and _table(tables, id_).get("enabled", True) is True:
                yield Active(id_, plugin, Tier.PLUGIN)

    # For threads, see Contributor.

    def revision(self) -> int:
        """Return a number that grows with every change on disk, and of an environment."""
        return self._revision

    def contribute(self, context: ContributionContext) -> Sequence[Registration]:
        """Return the servers of the plugins in force."""
        return [
            registration
            for active in self.active(context.config, context.thread_id)
            for registration in _registrations(active, context.config)
        ]

    async def discovered(self, context: ContributionContext) -> None:
        """Return at once: installed plugins are read before the first thread."""

    def looking_since(self, context: ContributionContext) -> float | None:
        """Return None: no look takes time."""
        return None

    async def refresh(self, context: ContributionContext) -> None:
        """Read the installed plugins again."""
        await self.load()


def _registrations(active: Active, config: Mapping[str, Any]) -> Iterator[Registration]:
    plugin = active.plugin
    metadata = RuntimeMetadata(plugin_id=active.id, plugin_display_names=(plugin.display_name,))
    adjusted = _table(_table(_table(config, "plugins"), active.id), "mcp_servers")
    for name, table in plugin.servers.items():
        server = dict(table)
        if active.tier is Tier.SELECTED_PLUGIN and "command" in server:
            server.setdefault("cwd", str(plugin.root))
        changes = _table(adjusted, name) if active.tier is Tier.PLUGIN else {}
        server |= {key: changes[key] for key in ADJUSTABLE if key in changes}
        yield Registration(name, server, metadata=metadata, tier=active.tier)


def _read_installed(store: PluginStore) -> Mapping[str, "Plugin"]:
    folders = store.installed()
    # Most processes have no plugin, and never need what reads them.
    return load_from_worker(_reading).read_installed(folders) if folders else {}


def _read_roots(
    roots: "Sequence[SelectedRoot]",
) -> "tuple[Sequence[tuple[SelectedRoot, Plugin]], Sequence[str]]":
    plugins, problems = load_from_worker(_reading).read_selected(roots)
    shown = [f"plugin {root.id[:MAX_SHOWN_CHARS]}: {text}" for root, text in problems]
    return plugins, shown[:MAX_PROBLEMS]


def _reading() -> ModuleType:
    from app_server.extensions.plugins import read_plugins

    return read_plugins


def feature_is_on(config: Mapping[str, Any], name: str) -> bool:
    """Whether a feature that is on by default was left on."""
    return _table(config, "features").get(name, True) is not False


def _table(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    table = config.get(key)
    return table if isinstance(table, dict) else {}


DEFAULT_HOOKS = "hooks/hooks.json"
"""Read where the manifest says nothing of hooks."""

MAX_PLACES = 16
"""Of one plugin; those behind them are left out."""

MAX_DATA_CHARS = 256
"""Of the name of a plugin's folder for data."""


def hooked_plugins(
    plugins: Plugins, home: Path, settings: Mapping[str, Any], thread_id: str | None = None
) -> list[HookedPlugin]:
    """Return the plugins in force, of which each may bring hooks."""
    return [
        HookedPlugin(
            id=active.id,
            root=active.plugin.root,
            data=home / "plugins" / "data" / _folder(active.id),
            read=partial(read_declarations, active.plugin.root),
        )
        for active in plugins.active(settings, thread_id)
    ]


def read_declarations(root: Path) -> tuple[Sequence[Declaration], Sequence[tuple[Path, str]]]:
    """Read the hooks of a plugin, and name unusable files. Blocks."""
    manifests = load_from_worker(_manifests)
    files = [root / name for name in manifests.MANIFESTS]
    manifest = next((file for file in files if file.is_file()), files[0])
    try:
        declared = manifests.read_manifest(root).get("hooks")
    except BrokenFiles as exc:
        return (), [(manifest, str(exc))]
    found: list[Declaration] = []
    problems: list[tuple[Path, str]] = []
    if declared is None:
        declared = f"./{DEFAULT_HOOKS}"
    places = declared if isinstance(declared, list) else [declared]
    for number, place in enumerate(places[:MAX_PLACES]):
        name, file, value = f"{manifest.name}#hooks[{number}]", manifest, place
        if (path := relative_path(place)) is not None:
            name, file = str(path), root / path
            try:
                value = read_object(root, path)
            except BrokenFiles as exc:
                problems.append((file, str(exc)))
                continue
        hooks = value.get("hooks") if isinstance(value, dict) else None
        if isinstance(hooks, dict):
            found.append(Declaration(name, file, hooks))
    return found, problems


def _manifests() -> ModuleType:
    from app_server.extensions.plugins import manifest

    return manifest


def _folder(plugin_id: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "-", plugin_id)[:MAX_DATA_CHARS]
