"""Folders that a client chose for a thread; each may be a plugin.

Source: docs/plugins.md, "Plugins of a thread".
"""

from collections.abc import Sequence
from dataclasses import dataclass

from protocol.model import JsonObject


@dataclass(frozen=True, slots=True)
class SelectedRoot:
    """A folder that was chosen for a thread."""

    id: str
    environment_id: str
    path: str


def roots_of(selected: Sequence[JsonObject]) -> list[SelectedRoot]:
    """Read `selectedCapabilityRoots`, in the form that threads keep it in."""
    roots = []
    for one in selected:
        match one:
            case {"id": str(id_), "location": {"environmentId": str(where), "path": str(path)}}:
                roots.append(SelectedRoot(id_, where, path))
    return roots
