"""Places that policies name, held by what they were: whoever is confined must not swap one.

Source: docs/tools.md, "Places are held".
"""

import os
import stat
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from app_server.permissions.confinement.paths import is_in

Identity: TypeAlias = tuple[int, int]
"""Device and inode of a folder."""

NOT_A_FOLDER: Identity = (0, 0)
"""What stands for anything else but a link: whoever saves a file puts another in its place."""

MAX_HELD = 4096
"""Paths that are remembered, and folders that are known to be writable to somebody confined."""

MAX_LINKS = 40
"""On the way to one place, as Linux has it."""


class PlaceChanged(Exception):
    """A place is not what it was when the policy was set; the text names it, and what to do."""


@dataclass(frozen=True, slots=True)
class HeldPlace:
    """What a path led to."""

    real: str
    identity: Identity | None
    """None: nothing was there."""
    through: tuple[str, ...]
    """The folders in which the parts of the path were looked up, those of links included."""


class HeldPlaces:
    """The places of one server, for as long as it runs. All methods block, and may run in threads.

    A place is held from when it is first named. After that it is a folder of the same identity, at
    the same real path, or it is refused. What nobody confined can have changed is held anew.
    """

    def __init__(self) -> None:
        self._held: dict[str, HeldPlace] = {}
        """By the path as it was given, the one used last at the end."""
        self._looked_at: dict[str, HeldPlace] = {}
        """Those that no policy has named so far. A model may name any number of paths, which must
        not have a place forgotten that a policy has."""
        self._reach: set[str] = set()
        """Folders that somebody confined could write to."""
        self._lock = threading.Lock()

    def hold(self, paths: Iterable[str]) -> None:
        """Set places anew, as somebody outside of every sandbox has named them.

        One that leads elsewhere than before is held as it was where somebody confined may have
        changed that.
        """
        with self._lock:
            for path in paths:
                found, before = _look(path), self._known(path)
                if before is None or found.real == before.real or not self._is_reached(before):
                    self._keep(path, found)

    def look_at(self, paths: Iterable[str]) -> None:
        """Hold places that are not held yet, as they are now, whoever names them.

        They are remembered apart until a policy has them, as many as of those.
        """
        with self._lock:
            for path in paths:
                if self._known(path) is None:
                    _put(self._looked_at, path, _look(path))

    def renew(self) -> None:
        """Set all places of policies anew."""
        self.hold(list(self._held))

    def checked(self, path: str) -> HeldPlace:
        """Return a place as it is held; nothing is there if it is gone.

        Raises:
            PlaceChanged: it is another one.
        """
        with self._lock:
            found, held = _look(path), self._known(path)
            if held is not None and found.identity is None and found.real == held.real:
                # It may come back; another folder there is not it.
                return found
            kept = found if held is None else self._kept(path, held, found)
            self._keep(path, kept)
            return kept

    def can_be_written(self, folders: Iterable[str]) -> None:
        """Remember that somebody confined can write to real folders from now on."""
        with self._lock:
            self._reach.update(folders)
            if len(self._reach) > MAX_HELD:
                self._reach = {"/"}

    def _kept(self, path: str, held: HeldPlace, found: HeldPlace) -> HeldPlace:
        if found.real != held.real:
            if held.identity is None:
                # It was no place yet, and a link does not make it one.
                return held
            raise PlaceChanged(
                f"`{path}` led to `{held.real}` when the sandbox was set, and leads to "
                f"`{found.real}` now, so nothing is done in this sandbox. Put it back, or name the "
                "folder that is meant"
            )
        if found.identity == held.identity:
            return held
        if held.identity is None or not self._is_reached(held):
            return found
        raise PlaceChanged(
            f"`{path}` is not the folder that it was when the sandbox was set, so nothing is done "
            "in this sandbox. If it may be used as it is now, name it again (`cwd` or the sandbox "
            "policy of turn/start), or load the thread again"
        )

    def _is_reached(self, held: HeldPlace) -> bool:
        return any(is_in(folder, root) for folder in held.through for root in self._reach)

    def _known(self, path: str) -> HeldPlace | None:
        return self._held.get(path) or self._looked_at.get(path)

    def _keep(self, path: str, held: HeldPlace) -> None:
        self._looked_at.pop(path, None)
        _put(self._held, path, held)


def _put(places: dict[str, HeldPlace], path: str, held: HeldPlace) -> None:
    """Put a place at the end, and drop the first of too many."""
    places.pop(path, None)
    places[path] = held
    if len(places) > MAX_HELD:
        del places[next(iter(places))]


def _look(path: str) -> HeldPlace:
    """Follow the links of an absolute path, and see what is there."""
    here, links = "/", 0
    through: dict[str, None] = {}
    ahead = deque(_parts(path))
    while ahead:
        name = ahead.popleft()
        if name == "..":
            here = os.path.dirname(here)  # noqa: PTH120 - texts, for speed
            continue
        through[here] = None
        there = f"{here.rstrip('/')}/{name}"
        try:
            target = None if links >= MAX_LINKS else os.readlink(there)  # noqa: PTH115
        except (OSError, ValueError):
            target = None
        if target is None:
            here = there
            continue
        links += 1
        if target.startswith("/"):
            here = "/"
        ahead.extendleft(reversed(_parts(target)))
    return HeldPlace(here, _identity(here), tuple(through))


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
