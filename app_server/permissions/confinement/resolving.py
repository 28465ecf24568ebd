"""What a confinement means on the disks of this machine: where links lead, where Git keeps what.

Everything here blocks: call it in a worker thread, right before what it is for.
Source: docs/tools.md, "Sandbox".
"""

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from app_server.permissions.confinement.confinement import Confinement
from app_server.permissions.confinement.globs import real_pattern
from app_server.permissions.confinement.paths import is_in
from app_server.runtime.files.opening import open_regular

GIT = ".git"

MAX_POINTER_BYTES = 4096
"""Of a `.git` file, and of `commondir` in the folder that it names."""


def resolved(confinement: Confinement) -> Confinement:
    """Follow links in all places, and protect where the `.git` files of roots lead.

    A root that is a link counts as the folder that it leads to. A root in which a protected name is
    a link is not writable: nothing can be laid over a link that keeps it from being replaced.
    Folders to read or write in that are not there are left out.
    """
    if not confinement.is_confined:
        return confinement
    real = os.path.realpath
    protected: list[str] = []
    linked: list[str] = []
    for place in confinement.protected:
        folder, name = os.path.split(place)
        real_place = f"{real(folder).rstrip('/')}/{name}"
        if Path(real_place).is_symlink():
            linked.append(real_place)
        protected += [real_place, real(real_place)]
        if name == GIT:
            protected += git_folders(real_place)
    writable = confinement.writable
    if writable is not None:
        writable = tuple(
            root for root in _present(writable) if not any(is_in(place, root) for place in linked)
        )
    return replace(
        confinement,
        readable=None if confinement.readable is None else _present(confinement.readable),
        writable=writable,
        protected=tuple(dict.fromkeys(protected)),
        denied=tuple(dict.fromkeys(map(real, confinement.denied))),
        denied_patterns=tuple(map(real_pattern, confinement.denied_patterns)),
        scratch=_present(confinement.scratch),
    )


def _present(places: Iterable[str]) -> tuple[str, ...]:
    found = dict.fromkeys(map(os.path.realpath, places))
    return tuple(place for place in found if Path(place).exists())


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
