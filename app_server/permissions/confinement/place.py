"""Resolution of a path, link by link, and the identity of what is there. It blocks.

Source: docs/tools.md, "Places are held".
"""

import os
import stat
from collections import deque
from dataclasses import dataclass, field
from typing import TypeAlias

Identity: TypeAlias = tuple[int, int]
"""Device and inode of a folder."""

NOT_A_FOLDER: Identity = (0, 0)
"""Identity of anything but a folder or a link: saving a file often replaces its inode."""

MAX_LINKS = 40
"""On the way to one place, as Linux has it."""


@dataclass(frozen=True, slots=True)
class HeldPlace:
    """Result of resolving a path."""

    real: str
    identity: Identity | None
    """None: nothing was there."""
    through: tuple[str, ...]
    """The folders in which the parts of the path were looked up, those of links included; the
    folders that these are in were passed too."""
    links: tuple[str, ...] = field(default=(), compare=False)
    """Folders of `through` in which a part of the path was a link."""
    is_stored: bool = field(default=False, compare=False)
    """Whether it was read from a file, and not seen since."""


def look(path: str) -> HeldPlace:
    """Follow the links of an absolute path, and see what is there."""
    here, followed = "/", 0
    through: dict[str, None] = {}
    links: dict[str, None] = {}
    ahead = deque(_parts(path))
    while ahead:
        name = ahead.popleft()
        if name == "..":
            here = os.path.dirname(here)  # noqa: PTH120 - texts, for speed
            continue
        through.pop(os.path.dirname(here), None)  # noqa: PTH120
        through[here] = None
        there = f"{here.rstrip('/')}/{name}"
        try:
            target = None if followed >= MAX_LINKS else os.readlink(there)  # noqa: PTH115
        except (OSError, ValueError):
            target = None
        if target is None:
            here = there
            continue
        followed += 1
        links[here] = None
        if target.startswith("/"):
            here = "/"
        ahead.extendleft(reversed(_parts(target)))
    return HeldPlace(here, _identity(here), tuple(through), tuple(links))


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _identity(path: str) -> Identity | None:
    """Return what is at a path; a link is nothing."""
    try:
        found = os.lstat(path)
    except (OSError, ValueError):
        return None
    return identity_of(found)


def identity_of(found: os.stat_result) -> Identity | None:
    """Return the identity by which something is held; None for a link, which never is."""
    if stat.S_ISDIR(found.st_mode):
        return found.st_dev, found.st_ino
    return None if stat.S_ISLNK(found.st_mode) else NOT_A_FOLDER
