"""Going to a file where only some may be touched: part by part, from the root of the file system.

Every folder on the way is opened in the one before, and no link is followed by the system: where a
link leads is read and walked like the rest. What is asked about and used in the end is therefore
the real path, whatever is put in its way meanwhile. Everything here blocks.
Source: docs/tools.md, "Files that the model names".
"""

import errno
import os
import stat
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import BinaryIO, TypeAlias

MAX_LINKS = 40
"""On the way to one file; that is what Linux allows as well."""

MAX_PARTS = 4096
"""Of one path, those of links included."""

MAX_FOLDERS = 128
"""Folders that a file may lie below; each is open meanwhile."""

FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""To open a folder in a folder, for going on from there."""

_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Allows: TypeAlias = Callable[[str], bool]
"""Whether something may be done with a real path."""


NOT_A_FILE = "it is not a file"


class NotReached(Exception):
    """A path is not gone to; the text is the reason."""


class PathDenied(NotReached):
    """Denied path; the text does not say whether it exists."""

    def __init__(self) -> None:
        super().__init__("not allowed by the sandbox")


@dataclass(frozen=True, slots=True)
class Reached:
    """Place that a path leads to, as descriptor and name; valid while the context lasts."""

    folder: int
    """Descriptor of the folder, good for `dir_fd` alone."""
    name: str
    """In that folder; `.` is the folder itself. Never follow a link of this name."""
    path: str
    """The real path."""
    found: os.stat_result | None
    """Status of what is there, as of `lstat`; None where nothing is."""
    below: tuple[str, ...] = ()
    """Parts of the path below `name`, if that is a missing folder."""


@contextmanager
def reached(
    path: str, allows: Allows, *, follows: bool = True, may_be_missing: bool = False
) -> Iterator[Reached]:
    """Go to an absolute path; its end is a link only if it was not to be followed.

    Raises:
        PathDenied: what may be done there does not include this.
        NotReached: it is not there (unless it may be missing), or cannot be gone to.
    """
    walk = _Walk(path, follows=follows, may_be_missing=may_be_missing)
    try:
        try:
            there = walk.to_its_end()
        except (OSError, ValueError) as exc:
            raise _failure(walk.here, exc, allows) from None
        if not allows(there.path):
            raise PathDenied
        yield there
    finally:
        walk.close()


def look_at(path: str, allows: Allows) -> os.stat_result:
    """Inspect the target of an absolute path.

    Raises:
        NotReached: it may not be looked at, or is not there.
    """
    with reached(path, allows) as there:
        assert there.found is not None
        return there.found


def open_file(path: str, allows: Allows) -> BinaryIO:
    """Open a regular file for reading.

    Raises:
        NotReached: it may not be read, is not there, or is something else.
    """
    with reached(path, allows) as there:
        try:
            opened = os.open(there.name, _FILE, dir_fd=there.folder)
        except OSError as exc:
            raise NotReached(os.strerror(exc.errno or 0)) from None
        # It may have become a pipe meanwhile, which would be waited for without an end.
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            os.close(opened)
            raise NotReached(NOT_A_FILE)
        return os.fdopen(opened, "rb")


@contextmanager
def folders_made(there: Reached) -> Iterator[tuple[int, str]]:
    """Make the folders that are missing; gives the descriptor of the last, and the name in it.

    Raises:
        OSError: one cannot be made, or something else took its place.
    """
    folder, name = os.dup(there.folder), there.name
    try:
        for part in there.below:
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=folder)
            inner = os.open(name, FOLDER, dir_fd=folder)
            os.close(folder)
            folder, name = inner, part
        yield folder, name
    finally:
        os.close(folder)


def _failure(here: str, error: OSError | ValueError, allows: Allows) -> NotReached:
    # Nobody learns whether something is there that may not be touched.
    if not allows(here):
        return PathDenied()
    number = error.errno if isinstance(error, OSError) else None
    return NotReached("it cannot be read" if number is None else os.strerror(number))


@dataclass(slots=True)
class _Walk:
    """Open folders on the way so far, and the parts of the path ahead."""

    path: str
    follows: bool
    may_be_missing: bool
    here: str = "/"
    """Path that the walk is at, or was at when it failed."""
    _ahead: deque[str] = field(default_factory=deque)
    _behind: list[str] = field(default_factory=list)
    _folders: list[int] = field(default_factory=list)
    _links: int = 0
    _walked: int = 0

    def to_its_end(self) -> Reached:
        """Take one step after the other.

        Raises:
            OSError: the system says no, or the way is too long.
            ValueError: the path has a character that no path has.
        """
        self._folders.append(os.open("/", FOLDER))
        self._ahead.extend(_parts(self.path))
        while True:
            there = self._step()
            if there is not None:
                return there

    def close(self) -> None:
        while self._folders:
            os.close(self._folders.pop())

    def _step(self) -> Reached | None:
        name = self._ahead.popleft() if self._ahead else "."
        self._walked += 1
        self.here = self._real(name)
        if self._walked > MAX_PARTS or len(self._folders) > MAX_FOLDERS:
            raise ValueError("the way is too long")
        if name == "..":
            if self._behind:
                self._behind.pop()
                os.close(self._folders.pop())
            if self._ahead:
                return None
            name, self.here = ".", self._real(".")
        try:
            found = os.stat(name, dir_fd=self._folders[-1], follow_symlinks=False)
        except FileNotFoundError:
            if self.may_be_missing and ".." not in self._ahead:
                return self._missing(name)
            raise
        if stat.S_ISLNK(found.st_mode) and (self._ahead or self.follows):
            self._turn_to(os.readlink(name, dir_fd=self._folders[-1]))
        elif self._ahead:
            self._folders.append(os.open(name, FOLDER, dir_fd=self._folders[-1]))
            self._behind.append(name)
        else:
            return Reached(self._folders[-1], name, self.here, found)
        return None

    def _missing(self, name: str) -> Reached:
        below = tuple(self._ahead)
        path = "/".join((self.here.rstrip("/"), *below)) if below else self.here
        return Reached(self._folders[-1], name, path, None, below)

    def _turn_to(self, target: str) -> None:
        self._links += 1
        if self._links > MAX_LINKS:
            raise OSError(errno.ELOOP, "too many links")
        if target.startswith("/"):
            self._behind.clear()
            while len(self._folders) > 1:
                os.close(self._folders.pop())
        self._ahead.extendleft(reversed(_parts(target)))

    def _real(self, name: str) -> str:
        return "/" + "/".join((*self._behind, *(() if name == "." else (name,))))


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]
