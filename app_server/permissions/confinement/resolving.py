"""What a confinement means on the disks of this machine: where links lead, where Git keeps what.

Everything here blocks: call it in a worker thread, right before what it is for.
Source: docs/tools.md, "Sandbox".
"""

import os
from dataclasses import replace
from functools import cache
from itertools import chain
from pathlib import Path

from app_server.permissions.confinement.confinement import Confinement
from app_server.permissions.confinement.globs import real_pattern
from app_server.permissions.confinement.held import Identity
from app_server.permissions.confinement.paths import is_in
from app_server.runtime.files.opening import open_regular

GIT = ".git"

MAX_POINTER_BYTES = 4096
"""Of a `.git` file, and of `commondir` in the folder that it names."""


def resolved(confinement: Confinement) -> Confinement:
    """Follow links in all places, and protect where the `.git` files of roots lead.

    A root that is a link counts as the folder that it leads to. A root in which a protected name is
    a link is not writable: nothing can be laid over a link that keeps it from being replaced.
    Folders to read or write in that are not there are left out; the others are held, and
    `identities` has what they are.

    Raises:
        PlaceChanged: one of them is not what it was when it was named.
    """
    if not confinement.is_confined:
        return confinement
    real = cache(os.path.realpath)
    identities: dict[str, Identity] = {}
    readable = _present(confinement, confinement.readable, identities)
    writable = _present(confinement, confinement.writable, identities)
    scratch = _present(confinement, confinement.scratch, identities)
    protected: list[str] = []
    linked: list[str] = []
    for place in confinement.protected:
        folder, name = os.path.split(place)
        real_place = f"{real(folder).rstrip('/')}/{name}"
        leads_to = real_place
        if Path(real_place).is_symlink():
            linked.append(real_place)
            leads_to = real(real_place)
        protected += [real_place, leads_to]
        if name == GIT:
            protected += git_folders(real_place)
    if writable is not None:
        writable = tuple(
            root for root in writable if not any(is_in(place, root) for place in linked)
        )
    confinement.held.can_be_written(("/",) if writable is None else writable)
    return replace(
        confinement,
        readable=readable,
        writable=writable,
        protected=tuple(dict.fromkeys(protected)),
        denied=tuple(dict.fromkeys(map(real, confinement.denied))),
        denied_patterns=tuple(map(real_pattern, confinement.denied_patterns)),
        scratch=scratch or (),
        identities=identities,
    )


def hold(confinement: Confinement) -> None:
    """Set the places of a policy anew, which somebody outside of every sandbox has named. Blocks.

    See HeldPlaces.hold.
    """
    if confinement.is_confined:
        places = (confinement.readable or (), confinement.writable or (), confinement.scratch)
        confinement.held.hold(chain.from_iterable(places))


def _present(
    confinement: Confinement, places: tuple[str, ...] | None, identities: dict[str, Identity]
) -> tuple[str, ...] | None:
    if places is None:
        return None
    found: dict[str, None] = {}
    for place in places:
        held = confinement.held.checked(place)
        if held.identity is not None:
            identities[held.real] = held.identity
            found[held.real] = None
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
