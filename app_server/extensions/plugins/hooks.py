"""The hooks that plugins declare: in their manifests, or in files that these name.

Source: docs/plugins.md, "A plugin"; docs/hooks.md, "Hooks of plugins".
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from app_server.extensions.hooks.definition import Declaration, HookedPlugin
from app_server.extensions.plugins.contributor import Plugins
from app_server.extensions.plugins.file_members import read_object, relative_path
from app_server.runtime.files.opening import BrokenFiles
from app_server.runtime.loader import load_from_worker

DEFAULT = "hooks/hooks.json"
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
        declared = f"./{DEFAULT}"
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
