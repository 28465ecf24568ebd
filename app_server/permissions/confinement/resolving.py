"""Resolution of a confinement on this machine's disks: symbolic links, and the folders of Git.

Everything here blocks: call it in a worker thread, right before what it is for.
Source: docs/tools.md, "Sandbox".
"""

import os
import stat
from dataclasses import replace
from itertools import chain
from pathlib import Path

from app_server.permissions.confinement.confinement import Confinement
from app_server.permissions.confinement.paths import depth_of, is_in, real_pattern
from app_server.permissions.confinement.pinned_places import Identity
from app_server.runtime.files.opening import open_regular

GIT = ".git"

MAX_POINTER_BYTES = 4096
"""Of a `.git` file, and of `commondir` in the folder that it names."""


MAX_DEPTH = 128
"""Of paths whose folders are looked at one by one."""


def resolved(confinement: Confinement) -> Confinement:
    """Follow links in all places, and protect where the `.git` files of roots lead.

    A root that is a link counts as the folder that it leads to. A root in which a protected name is
    a link is not writable: nothing can be laid over a link that keeps it from being replaced.
    Folders to read or write in that are not there are left out; the others are pinned, and
    `identities` has what they are.

    Raises:
        PlaceChanged: one of them is not what it was when it was named.
    """
    if not confinement.is_confined:
        return confinement
    links = _Links()
    identities: dict[str, Identity] = {}
    readable = _present(confinement, confinement.readable, identities)
    writable = _present(confinement, confinement.writable, identities)
    scratch = _present(confinement, confinement.scratch, identities)
    protected: list[str] = []
    linked: list[str] = []
    for place in confinement.protected:
        folder, name = os.path.split(place)
        real_place = f"{links.real(folder).rstrip('/')}/{name}"
        leads_to = links.real(real_place)
        if leads_to != real_place:
            linked.append(real_place)
        protected += [real_place, leads_to]
        if name == GIT:
            protected += git_folders(real_place)
    if writable is not None:
        writable = tuple(
            root for root in writable if not any(is_in(place, root) for place in linked)
        )
    confinement.pinned.can_be_written(("/",) if writable is None else writable)
    return replace(
        confinement,
        readable=readable,
        writable=writable,
        protected=tuple(dict.fromkeys(protected)),
        denied=tuple(dict.fromkeys(map(links.real, confinement.denied))),
        denied_patterns=tuple(map(real_pattern, confinement.denied_patterns)),
        scratch=scratch or (),
        identities=identities,
    )


class _Links:
    """Resolver of links in absolute paths; a folder that several share is looked at once."""

    def __init__(self) -> None:
        self._known = {"/": "/"}

    def real(self, path: str) -> str:
        """Follow the links of a path, as os.path.realpath does."""
        known = self._known.get(path)
        if known is None:
            folder, name = os.path.split(path)
            if name in ("", ".", "..") or depth_of(path) > MAX_DEPTH:
                known = os.path.realpath(path)
            else:
                there = f"{self.real(folder).rstrip('/')}/{name}"
                is_link = stat.S_ISLNK(_mode(there))
                known = os.path.realpath(there) if is_link else there
            self._known[path] = known
        return known


def _mode(path: str) -> int:
    try:
        return os.lstat(path).st_mode
    except (OSError, ValueError):
        return 0


def pin_places(confinement: Confinement, *, anew: bool = True) -> None:
    """Set the places of a policy, which somebody outside of every sandbox has named. Blocks.

    See PinnedPlaces.pin.
    """
    if confinement.is_confined:
        places = (confinement.readable or (), confinement.writable or (), confinement.scratch)
        confinement.pinned.pin(chain.from_iterable(places), anew=anew)


def _present(
    confinement: Confinement, places: tuple[str, ...] | None, identities: dict[str, Identity]
) -> tuple[str, ...] | None:
    if places is None:
        return None
    found: dict[str, None] = {}
    for place in places:
        place_now = confinement.pinned.checked(place)
        if place_now.identity is not None:
            identities[place_now.real] = place_now.identity
            found[place_now.real] = None
    return tuple(found)


def git_folders(place: str) -> list[str]:
    """Return where a `.git` file points to, then the repository that it shares if it is a worktree.

    Nothing for a folder, and for what is no such file.
    """
    pointer = first_line(place)
    if pointer is None or not pointer.startswith("gitdir:"):
        return []
    folder = os.path.realpath(Path(place).parent / pointer.removeprefix("gitdir:").strip())
    shared = first_line(f"{folder}/commondir")
    return [folder] if shared is None else [folder, os.path.realpath(Path(folder, shared))]


def first_line(path: str) -> str | None:
    """Return the first line of a small regular file; None where there is none."""
    try:
        file = open_regular(path)
    except OSError:
        return None
    if file is None:
        return None
    with file:
        return os.fsdecode(file.read(MAX_POINTER_BYTES)).split("\n")[0].strip()
