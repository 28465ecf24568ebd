"""Which folders must be watched so that changes of one path are seen.

Everything here blocks. Folders are named without links, as the system's notifications name them.
Source: docs/tools.md, "Host methods".
"""

import os
from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedPlace:
    """A path, as it was when it was looked at."""

    path: Path
    """As the client calls it."""
    folders: frozenset[str]
    """To be watched, each with what is directly in it."""
    names: frozenset[str]
    """The real paths behind the path; empty while its folder is missing."""
    signs: frozenset[str]
    """After changes of these there may be something else at the path."""
    inside: str | None
    """The real path of the folder at the path; None if there is no folder."""
    exists: bool

    def changed(self, changes: Set[str], by_folder: dict[str, list[str]]) -> Sequence[str]:
        """Return what is to be reported of changes: the path, and names in its folder."""
        changed = [str(self.path)] if changes & self.names else []
        if self.inside is not None:
            changed += [f"{self.path}/{name}" for name in by_folder.get(self.inside, ())]
        return changed

    def may_have_moved(self, changes: Set[str]) -> bool:
        """Whether other folders may have to be watched after these changes."""
        return bool(changes & (self.signs | self.folders))


def look_at(path: Path) -> WatchedPlace:
    """Find out what is at a path and what to watch for it."""
    nearest = path.parent
    missing = path
    while not nearest.is_dir():
        nearest, missing = nearest.parent, nearest
    folder = os.path.realpath(nearest)
    named = os.path.join(folder, missing.name)  # noqa: PTH118
    real = os.path.realpath(path)
    is_folder, exists = path.is_dir(), path.exists()
    folders, names = {folder}, {named} if missing == path else set()
    if exists:
        folders.add(real if is_folder else os.path.dirname(real))  # noqa: PTH120
        names.add(real)
    if is_folder and real == named:
        # The end of a folder is reported to who watches it.
        folders.remove(folder)
    return WatchedPlace(
        path=path,
        folders=frozenset(folders),
        names=frozenset(names),
        signs=frozenset({named, *names}),
        inside=real if is_folder else None,
        exists=exists,
    )
