"""Folders in which a server keeps its secrets, made anew for each sandbox of what is in them.

A mount on a file ends when another file takes its place (rename(2)), as with each renewal of a
token, and on what is not there yet nothing can be mounted. What comes into such a folder later is
not seen in the sandbox at all.
Source: docs/tools.md, "Sandbox".
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from app_server.permissions.confinement.confinement import Confinement, Ruling
from app_server.permissions.confinement.places import SECRETS_OF_HOMES

MAX_ENTRIES = 256
"""Of such a folder; one with more is shown as it is, with mounts on its secrets."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """A confinement in which such folders are hidden, and what was in them is not."""

    confinement: Confinement
    entries: frozenset[str]
    """The paths in the hidden folders: they may be gone by the time of their mount."""


def sealed(confinement: Confinement) -> Sealed:
    """Hide the folders of secrets that a confinement shows, but for what is in them now. Blocks."""
    ruling = Ruling(confinement)
    denied = map(Path, confinement.denied)
    homes = {str(path.parent) for path in denied if path.name in SECRETS_OF_HOMES}
    folders: list[str] = []
    shown: list[str] = []
    for home in sorted(homes):
        entries = list(_entries(home)) if ruling.access(home) == "read" else None
        if entries is not None and len(entries) <= MAX_ENTRIES:
            folders.append(home)
            shown += entries
    if not folders:
        return Sealed(confinement, frozenset())
    readable = ("/",) if confinement.readable is None else confinement.readable
    made = replace(
        confinement,
        readable=(*readable, *shown),
        denied=(*confinement.denied, *folders),
    )
    return Sealed(made, frozenset(shown))


def _entries(home: str) -> Iterator[str]:
    try:
        with os.scandir(home) as found:
            names = [entry.name for entry in found]
    except OSError:
        return
    for name in names:
        # Others are drafts and copies of them.
        if not any(name == secret or name.startswith(f"{secret}.") for secret in SECRETS_OF_HOMES):
            yield str(Path(home, name))
