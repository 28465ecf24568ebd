"""Places that policies name, held by identity: no confined process may swap one.

Source: docs/tools.md, "Places are held".
"""

import logging
import os
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from app_server.permissions.confinement.held_file import Entry, PlacesFile
from app_server.permissions.confinement.paths import is_in, ways_to
from app_server.permissions.confinement.place import NOT_A_FOLDER, HeldPlace, look
from app_server.runtime.files.secret import StoreFailed

T = TypeVar("T")

logger = logging.getLogger(__name__)

MAX_HELD = 4096
"""Paths that are remembered, and folders that are known to be writable to somebody confined."""


class PlaceChanged(Exception):
    """A place is not what it was when the policy was set; the text names it, and what to do."""


class HeldPlaces:
    """The places of one home, also after a restart. All methods block, and may run in threads.

    A place is held from when it is first named. After that it is a folder of the same identity, at
    the same real path, or it is refused. What nobody confined can have changed is held anew.
    """

    def __init__(self, file: PlacesFile | None = None) -> None:
        """With a file all servers of its home know the same; without one this ends with `self`."""
        self._file = file
        self._held: dict[str, HeldPlace] = {}
        """By the path as it was given, the one used last at the end."""
        self._looked_at: dict[str, HeldPlace] = {}
        """Places that no policy has named so far. A model may name any number of paths, which must
        not have a place forgotten that a policy has."""
        self._checked: dict[str, None] = {}
        """The paths of `checked`, the one used last at the end."""
        self._reach: set[str] = set()
        """Folders that somebody confined could write to."""
        self._is_behind = False
        """Whether the file could not be written, so that it lacks something."""
        self._lock = threading.Lock()

    def hold(self, paths: Iterable[str], *, anew: bool = True) -> None:
        """Set places as somebody outside of every sandbox has named them.

        One that is held already is set anew if `anew`. One that leads elsewhere than before stays
        as it was where somebody confined may have changed that; so does one that was never held.
        """
        with self._lock:
            self._follow()
            changed: list[Entry] = []
            for path in paths:
                if not anew and path in self._held:
                    continue
                found, before = look(path), self._known(path)
                if path not in self._held and self._way_out(found) is not None:
                    # Whoever confined it was put there by is not to have it named by others.
                    self._looked_at.pop(path, None)
                elif before is None or found.real == before.real or not self._is_reached(before):
                    changed += self._keep(path, found)
            self._store(changed)

    def look_at(self, paths: Iterable[str]) -> list[str]:
        """Return the real paths, and hold each place as it is now unless it is held already.

        What is found is remembered by its real path, apart until a policy has it, as many as of
        those.
        """
        with self._lock:
            self._follow()
            found = [self._held.get(path) or look(path) for path in paths]
            for held in found:
                if self._known(held.real) is None:
                    _put(self._looked_at, held.real, held)
            return [held.real for held in found]

    def renew(self) -> None:
        """Set those places anew that were checked here; those of other servers stay as they are."""
        self.hold(list(self._checked))

    def checked(self, path: str) -> HeldPlace:
        """Return a place as it is held; nothing is there if it is gone.

        Raises:
            PlaceChanged: it is another one.
        """
        with self._lock:
            self._follow()
            _put(self._checked, path, None)
            found, held = look(path), self._known(path)
            if held is not None and found.identity is None and found.real == held.real:
                # It may come back; another folder there is not it.
                return found
            kept = self._first(path, found) if held is None else self._kept(path, held, found)
            self._store(self._keep(path, kept))
            return kept

    def can_be_written(self, folders: Iterable[str]) -> None:
        """Remember that somebody confined can write to real folders from now on."""
        with self._lock:
            self._follow()
            added = frozenset(folders) - self._reach
            if added:
                self._reach |= added
                self._bound_reach()
                self._store([added])

    def _first(self, path: str, found: HeldPlace) -> HeldPlace:
        way_out = self._way_out(found)
        if way_out is not None:
            raise PlaceChanged(
                f"`{path}` leads to `{found.real}` by a link in `{way_out}`, where commands of a "
                "sandbox can write, so nothing is done in this sandbox. Name the folder that is "
                "meant"
            )
        return found

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
            return replace(held, is_stored=False)
        if held.identity is None or not self._is_reached(held) or _is_another_disk(held, found):
            return found
        raise PlaceChanged(
            f"`{path}` is not the folder that it was when the sandbox was set, so nothing is done "
            "in this sandbox. If it may be used as it is now, name it again (`cwd` or the sandbox "
            "policy of turn/start or thread/resume)"
        )

    def _is_reached(self, held: HeldPlace) -> bool:
        return any(True for folder in held.through for _ in self._writable_above(folder))

    def _way_out(self, found: HeldPlace) -> str | None:
        """Return the folder of a link that somebody confined may have made to reach elsewhere."""
        for folder in found.links:
            writable = list(self._writable_above(folder))
            if writable and not any(is_in(found.real, root) for root in writable):
                return folder
        return None

    def _writable_above(self, folder: str) -> Iterator[str]:
        return (above for above in (folder, *ways_to(folder)) if above in self._reach)

    def _known(self, path: str) -> HeldPlace | None:
        return self._held.get(path) or self._looked_at.get(path)

    def _keep(self, path: str, held: HeldPlace) -> list[Entry]:
        """Hold a place; returns what of it is not in the file."""
        self._looked_at.pop(path, None)
        before = self._held.get(path)
        _put(self._held, path, held)
        return [] if before == held else [(path, held)]

    def _bound_reach(self) -> None:
        """Bound the reach to MAX_HELD: drop nested folders, then missing ones, or else take `/`."""
        if len(self._reach) > MAX_HELD:
            self._reach -= {one for one in self._reach if not self._reach.isdisjoint(ways_to(one))}
        if len(self._reach) > MAX_HELD:
            self._reach = {one for one in self._reach if os.path.lexists(one)}
        if len(self._reach) > MAX_HELD:
            self._reach = {"/"}

    def _follow(self) -> None:
        """Take over what the file says that is not known here."""
        if self._file is not None:
            self._take(self._file.news())

    def _take(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            if isinstance(entry, frozenset):
                self._reach |= entry
            else:
                _put(self._held, *entry)
        self._bound_reach()

    def _store(self, entries: list[Entry]) -> None:
        """Write down what changed; what cannot be written is tried again with the next change."""
        if self._file is None or not (entries or self._is_behind):
            return
        everything: list[Entry] = [*self._held.items(), frozenset(self._reach)]
        try:
            if self._is_behind:
                news = self._file.write(everything)
            else:
                news = self._file.add(entries, everything)
        except StoreFailed as exc:
            if not self._is_behind:
                logger.warning("the places of sandboxes are not stored: %s", exc)
            self._is_behind = True
        else:
            self._is_behind = False
            self._take([*news, *entries])


def _is_another_disk(held: HeldPlace, found: HeldPlace) -> bool:
    """Whether the disk of a stored folder has another number now, or the folder is on another one.

    Some file systems get a new number with each boot or mount, and so do those of containers.
    Nobody confined can move a folder of another disk to a place: rename(2), EXDEV.
    """
    if held.identity is None or found.identity is None or not held.is_stored:
        return False
    folders = NOT_A_FOLDER not in (held.identity, found.identity)
    return folders and held.identity[0] != found.identity[0]


def _put(places: dict[str, T], path: str, held: T) -> None:
    """Put a place at the end, and drop the first of too many."""
    places.pop(path, None)
    places[path] = held
    if len(places) > MAX_HELD:
        del places[next(iter(places))]
