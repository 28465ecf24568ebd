"""Lists of the paths below roots: made ready for matching, read from folders, kept for a while.

A list has its paths in small letters without accents too. A folder is read again when its time has
changed, an ignore file when its time or size has: no list is older than the look at these, and no
watches of the system are needed. Reading a tree blocks.
Source: docs/tools.md, "Host methods".
"""

import asyncio
import os
import threading
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from app_server.host.files.work import Stop
from app_server.host.search.ignore import GIT, RuleReader, Rules, Stamp, stamp_of


def fold(text: str) -> str:
    """Return a text of the same length in which letters are compared."""
    if text.isascii():
        return text.lower()
    return "".join(map(_fold_one, text))


def _fold_one(letter: str) -> str:
    # Some letters have several in small: each stays one, so that places stay what they are.
    return unicodedata.normalize("NFD", letter)[0].lower()[0]


Folder: TypeAlias = tuple[str, Sequence[str]]
"""Its path below the root with a slash behind it, empty for the root; the names of its files."""


class Listing:
    """Files and folders below one root. Never changes."""

    def __init__(self, root: str, folders: Iterable[Folder]) -> None:
        """Take the folders that are in `root`, and `root` itself, in any order."""
        self.root = root
        self._folders = list(folders)
        self.files: Sequence[str] = [
            prefix + name for prefix, names in self._folders for name in names
        ]
        self.folders: Sequence[str] = [prefix[:-1] for prefix, _ in self._folders if prefix]

    @cached_property
    def names(self) -> Sequence[str]:
        """The folded names of the files, in the order of the files."""
        return _fold_all([name for _, names in self._folders for name in names])

    @cached_property
    def paths(self) -> Sequence[str]:
        """Folded paths of the files, then those of the folders, each in order."""
        return [*_fold_all(self.files), *self.folded_folders]

    @cached_property
    def folded_folders(self) -> Sequence[str]:
        """The folded paths of the folders, in their order."""
        return _fold_all(self.folders)

    def path(self, index: int) -> str:
        """Return the path at an index of `paths`, as it is written."""
        count = len(self.files)
        return self.files[index] if index < count else self.folders[index - count]

    def is_file(self, index: int) -> bool:
        """Whether a file stands at a place of `paths`."""
        return index < len(self.files)


def _fold_all(texts: Sequence[str]) -> Sequence[str]:
    # One call for all is ten times as fast; no path has a NUL.
    joined = "\0".join(texts)
    if not texts or not joined.isascii():
        return [fold(text) for text in texts]
    return joined.lower().split("\0")


MAX_ENTRIES = 500_000
"""Files and folders of one tree; what is found after them is left out."""

MAX_DEPTH = 128
"""Folders inside of each other; what is deeper is left out."""

RACY_NS = 1_000_000_000
"""Nanoseconds: an mtime less than this before the read may stay the same at a further change."""

OnProgress: TypeAlias = Callable[[], None]
"""Is called after each folder that was read."""


@dataclass(slots=True, eq=False)
class _Folder:
    """One folder, as it was read."""

    prefix: str
    """Its path below the root with a slash behind it; empty for the root."""
    outer: Rules
    """Of the folder that it is in."""
    parent: "_Folder | None" = None
    depth: int = 0
    stamp: Stamp = None
    """None: it must be read."""
    real: tuple[int, int] = (0, 0)
    """Device and inode."""
    ignore_files: dict[str, Stamp] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    folders: dict[str, "_Folder"] = field(default_factory=dict)


class Tree:
    """The files and folders below one folder. Not for several threads at once."""

    def __init__(
        self, root: Path, max_entries: int = MAX_ENTRIES, max_depth: int = MAX_DEPTH
    ) -> None:
        """Prepare; the tree is read with the first refresh."""
        self._max_entries = max_entries
        self._max_depth = max_depth
        self._place = str(root)
        self._rules = RuleReader(root)
        self._root: _Folder | None = None
        self._entries = 0
        self._has_changed = False
        """Since a refresh last came to its end."""

    def refresh(self, stop: Stop, on_progress: OnProgress = lambda: None) -> bool:
        """Read changed folders; whether any has changed.

        Raises:
            Stopped: nobody waits any more; the next refresh goes on.
        """
        if not os.path.isdir(self._place):  # noqa: PTH112 (Path.is_dir raises for a name too long)
            changed, self._root = self._root is not None, None
            return changed
        if self._root is None or self._rules.has_changed:
            self._root, self._entries = _Folder("", self._rules.above()), 0
            self._has_changed = True
        waiting = [self._root]
        while waiting:
            stop.check()
            folder = waiting.pop()
            if self._is_stale(folder):
                self._read(folder)
                self._has_changed = True
                on_progress()
            waiting.extend(folder.folders.values())
        changed, self._has_changed = self._has_changed, False
        return changed

    def folders(self) -> Iterator[Folder]:
        """Give the folders that were read, in no order."""
        waiting = [self._root] if self._root is not None else []
        while waiting:
            folder = waiting.pop()
            yield folder.prefix, folder.files
            waiting.extend(folder.folders.values())

    def _is_stale(self, folder: _Folder) -> bool:
        if folder.stamp is None or stamp_of(f"{self._place}/{folder.prefix}") != folder.stamp:
            return True
        files = folder.ignore_files
        return bool(files) and any(stamp_of(path) != stamp for path, stamp in files.items())

    def _read(self, folder: _Folder) -> None:
        entries, now = self._scan(folder)
        names = {entry.name for entry in entries}
        joined = "\0".join(["", *names, ""])
        rules, ignore_files = self._rules.inside(folder.outer, folder.prefix, names)
        # With other rules, all that is below is read anew.
        known = folder.folders if ignore_files == folder.ignore_files else {}
        before = len(folder.files) + len(folder.folders)
        del entries[max(self._max_entries - self._entries + before, 0) :]
        if GIT in names or not joined.isascii():
            entries = [entry for entry in entries if entry.name != GIT and _is_text(entry.name)]
        if rules.may_ignore(folder.prefix, names, joined):
            entries = [entry for entry in entries if not _is_ignored(entry, folder.prefix, rules)]
        inner, folder.files = _folders_and_files(entries)
        folder.folders = {
            entry.name: known.get(entry.name)
            or _Folder(f"{folder.prefix}{entry.name}/", rules, folder, folder.depth + 1)
            for entry in inner
            if folder.depth + 1 < self._max_depth and not _leads_back(entry, folder)
        }
        if ignore_files and any(_is_racy(stamp, now) for stamp in ignore_files.values()):
            ignore_files = dict.fromkeys(ignore_files)
        folder.ignore_files = ignore_files
        self._entries += len(folder.files) + len(folder.folders) - before

    def _scan(self, folder: _Folder) -> tuple[list["os.DirEntry[str]"], int]:
        path, now = f"{self._place}/{folder.prefix}", time.time_ns()
        try:
            found = os.stat(path)  # noqa: PTH116
            folder.real = found.st_dev, found.st_ino
            stamp = found.st_mtime_ns, found.st_size, found.st_ino
            folder.stamp = None if _is_racy(stamp, now) else stamp
            with os.scandir(path) as scanned:
                return list(scanned), now
        except OSError:
            folder.stamp = None
            return [], now


def _is_racy(stamp: Stamp, now: int) -> bool:
    return stamp is not None and now - stamp[0] < RACY_NS


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _folders_and_files(
    entries: Sequence["os.DirEntry[str]"],
) -> tuple[list["os.DirEntry[str]"], list[str]]:
    """Separate folders from files; other kinds are left out."""
    folders, files = [], []
    for entry in entries:
        try:
            if entry.is_dir():
                folders.append(entry)
            elif entry.is_file():
                files.append(entry.name)
        except OSError:
            # A link in a circle.
            continue
    return folders, files


def _is_ignored(entry: "os.DirEntry[str]", prefix: str, rules: Rules) -> bool:
    name = entry.name
    return rules.ignore(prefix + name, name, is_folder=_is_folder(entry))


def _leads_back(entry: "os.DirEntry[str]", folder: _Folder) -> bool:
    """Whether a folder is a link to a folder that it is in."""
    if not entry.is_symlink():
        return False
    try:
        found = entry.stat()
    except OSError:
        return True
    above: _Folder | None = folder
    while above is not None:
        if above.real == (found.st_dev, found.st_ino):
            return True
        above = above.parent
    return False


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


MAX_KEPT = 4
"""Roots whose lists are kept; the one that was searched least recently is dropped first."""

KEPT_S = 600.0
"""For which a list is kept after its last use."""

FIRST_PARTIAL_S = 0.01
PARTIAL_GROWTH = 4.0
"""A list that is made is shown after this long, and then each time this much later."""

OnPartial: TypeAlias = Callable[[Listing], None]
"""Takes what was found so far, in a worker thread."""


@dataclass(slots=True)
class _Partials:
    """Shows a list while it is made, ever more rarely."""

    show: Callable[[], None]
    wait_s: float = FIRST_PARTIAL_S
    began: float = field(default_factory=time.monotonic)

    def after_folder(self) -> None:
        """Show it if it is time."""
        if time.monotonic() - self.began >= self.wait_s:
            self.wait_s *= PARTIAL_GROWTH
            self.show()


class RootListing:
    """The list of one root."""

    def __init__(self, root: str) -> None:
        """Prepare; `root` is the root's name in results."""
        self.root = root
        self.listing: Listing | None = None
        """As it was when it was looked at last; None before."""
        self._tree = Tree(Path(os.path.abspath(root)))  # noqa: PTH100
        self._reading = threading.Lock()

    def refresh(self, stop: Stop, on_partial: OnPartial | None = None) -> Listing:
        """Bring the list up to date and return it; blocks.

        `on_partial` is shown a first list while it is made.

        Raises:
            Stopped: nobody waits any more.
        """
        with self._reading:
            if self.listing is None and on_partial is not None:
                show = _Partials(lambda: on_partial(self._read()))
                changed = self._tree.refresh(stop, show.after_folder)
            else:
                changed = self._tree.refresh(stop)
            if changed or self.listing is None:
                self.listing = self._read()
            return self.listing

    def _read(self) -> Listing:
        return Listing(self.root, self._tree.folders())


class Listings:
    """The lists of one server. Used from its event loop."""

    def __init__(self) -> None:
        self._kept: dict[str, RootListing] = {}
        """The one that was used last is the last."""
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def of(self, roots: Sequence[str]) -> Sequence[RootListing]:
        """Return the lists of roots, each once; they may be out of date."""
        found = []
        for root in dict.fromkeys(roots):
            listing = self._kept.pop(root, None) or RootListing(root)
            self._kept[root] = listing
            found.append(listing)
            if root in self._timers:
                self._timers.pop(root).cancel()
            loop = asyncio.get_running_loop()
            self._timers[root] = loop.call_later(KEPT_S, self._drop, root)
        while len(self._kept) > MAX_KEPT:
            self._drop(next(iter(self._kept)))
        return found

    def close(self) -> None:
        """Forget all."""
        for root in list(self._kept):
            self._drop(root)

    def _drop(self, root: str) -> None:
        self._kept.pop(root, None)
        if (timer := self._timers.pop(root, None)) is not None:
            timer.cancel()
