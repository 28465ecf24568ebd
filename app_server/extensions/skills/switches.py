"""Which skills are switched off: `[[skills.config]]`.

Source: docs/skills.md, "Switching skills off".
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

MAX_ENTRIES = 1_000


def is_enabled(name: str, file: Path, settings: Mapping[str, Any]) -> bool:
    """Whether the settings leave a skill on; the last entry about it counts."""
    enabled = True
    for entry in entries_of(settings):
        if entry.get("name") == name or entry.get("path") == str(file):
            enabled = entry.get("enabled", True) is not False
    return enabled


def entries_of(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the entries; what is none is left out."""
    table = settings.get("skills")
    entries = table.get("config") if isinstance(table, dict) else None
    return [entry for entry in entries if isinstance(entry, dict)] if entries else []


def switched(
    settings: Mapping[str, Any], key: str, value: str, *, enabled: bool
) -> list[dict[str, Any]]:
    """Return the entries with a skill on or off, which `key` names by `name` or by `path`.

    A skill is on without an entry.
    """
    others = [entry for entry in entries_of(settings) if entry.get(key) != value]
    return others if enabled else [*others, {key: value, "enabled": False}]
