"""From a patch and the files on the disk to what is to be written: all of it checked, none written.

What is here reads files and blocks: call it in a worker.
Source: docs/tools.md, "Patches".
"""

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from app_server.patch.match import apply_hunks
from app_server.patch.parse import (
    AddFile,
    BadPatch,
    DeleteFile,
    FileChange,
    NotApplicable,
    Patch,
    UpdateFile,
)
from app_server.permissions.confinement.confinement import Confinement, Ruling
from app_server.permissions.confinement.pinned_places import PlaceChanged
from app_server.permissions.confinement.resolving import resolved
from app_server.runtime.files.reaching import NotReached, Reached, reached

MAX_FILE_BYTES = 64 * 1_048_576
"""Of one file that is changed."""

MAX_TOTAL_BYTES = 256 * 1_048_576
"""Of all files that one patch changes."""

Kind: TypeAlias = Literal["add", "delete", "update"]

_MARKS = (
    (b"\xff\xfe\0\0", "UTF-32"),
    (b"\0\0\xfe\xff", "UTF-32"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
)


@dataclass(frozen=True, slots=True)
class FileState:
    """A file as it was read."""

    text: str
    """Of a link its target."""
    status: os.stat_result
    attributes: Mapping[str, bytes] = field(default_factory=dict)
    """Extended ones, its access control list among them."""

    @property
    def is_executable(self) -> bool:
        """Whether its owner may execute it."""
        return bool(self.status.st_mode & stat.S_IXUSR)

    @property
    def is_link(self) -> bool:
        """Whether it is a symbolic link; only what is deleted can be one."""
        return stat.S_ISLNK(self.status.st_mode)

    def is_same(self, status: os.stat_result | None) -> bool:
        """Whether the file is unchanged since it was read."""
        return status is not None and _identity(status) == _identity(self.status)


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """One file that changes."""

    kind: Kind
    named: str
    """Its path as the patch has it; of a move the new one."""
    path: str
    """Its path, made absolute."""
    place: str
    """Resolved path, without links."""
    before: FileState | None
    """None: there is no file yet."""
    after: str | None
    """The text that it becomes; None: it goes."""
    move_path: str | None = None
    """The path of the new name, made absolute; None: it keeps its name."""
    move_place: str | None = None
    replaced: FileState | None = None
    """Present file at the new name."""

    @property
    def written(self) -> dict[str, str]:
        """The places where something changes, each with the path that leads there."""
        places = {self.place: self.path}
        if self.move_place is not None and self.move_path is not None:
            places[self.move_place] = self.move_path
        return places


@dataclass(frozen=True, slots=True)
class Plan:
    """Changes of a patch; at least one, in the order of the patch."""

    changes: tuple[PlannedChange, ...]
    outside: dict[str, str]
    """Places that the confinement does not let be written, each with the path that leads there."""
    locked: tuple[str, ...] = ()
    """Paths of files without write permission; empty where nothing is confined."""


def plan_patch(patch: Patch, folder: str, confinement: Confinement) -> Plan:
    """Find out what a patch does to files whose paths begin at `folder`, an absolute path; blocks.

    `confinement` is as settings have it: links are followed here.

    Raises:
        BadPatch: two of its changes are about one file.
        NotApplicable: a file is not what the patch needs, may not be read, or is too large, or a
            folder of the sandbox is another one than it was; the text names it.
    """
    try:
        planner = _Planner(folder, Ruling(resolved(confinement)))
    except PlaceChanged as exc:
        raise NotApplicable(str(exc)) from None
    changes = tuple(planner.plan(change) for change in patch.changes)
    locked = [change.path for change in changes if _is_locked(change)]
    return Plan(changes, planner.outside, tuple(locked) if confinement.is_confined else ())


class _Planner:
    def __init__(self, folder: str, ruling: Ruling) -> None:
        self._folder = folder
        self._ruling = ruling
        self._named: set[str] = set()
        self._taken: set[str] = set()
        self._bytes = 0
        self.outside: dict[str, str] = {}

    def plan(self, change: FileChange) -> PlannedChange:
        path = self._absolute(change.path)
        match change:
            case AddFile(content=content):
                place, before = self._find("write", path, may_be_missing=True)
                return PlannedChange("add", change.path, path, place, before, content)
            case DeleteFile():
                place, before = self._find("read", path, follows=False)
                return PlannedChange("delete", change.path, path, place, before, None)
            case UpdateFile():
                return self._update(change, path)

    def _update(self, change: UpdateFile, path: str) -> PlannedChange:
        place, before = self._find("read file to update", path)
        assert before is not None, "what is missing was refused"
        after = apply_hunks(path, before.text, change.hunks)
        if change.move_to is None:
            return PlannedChange("update", change.path, path, place, before, after)
        target = self._absolute(change.move_to)
        target_place, replaced = self._find("write", target, may_be_missing=True)
        return PlannedChange(
            "update", change.move_to, path, place, before, after, target, target_place, replaced
        )

    def _absolute(self, path: str) -> str:
        whole = path if path.startswith("/") else f"{self._folder}/{path}"
        return "/" + os.path.normpath(whole).lstrip("/")

    def _find(
        self, to: str, path: str, *, follows: bool = True, may_be_missing: bool = False
    ) -> tuple[str, FileState | None]:
        """Go to a path that a change is about; return where it leads, and what is there."""
        if path in self._named:
            raise _twice(path)
        self._named.add(path)
        try:
            with reached(
                path, self._may_read, follows=follows, may_be_missing=may_be_missing
            ) as at:
                self._take(path, at.path)
                return at.path, None if at.found is None else self._read(at, at.found)
        except NotReached as exc:
            raise NotApplicable(f"Failed to {to} {path}: {exc}") from None
        except OSError as exc:
            reason = os.strerror(exc.errno) if exc.errno else exc
            raise NotApplicable(f"Failed to {to} {path}: {reason}") from None
        except _Unreadable as exc:
            raise NotApplicable(f"Failed to {to} {path}: {exc}") from None

    def _may_read(self, place: str) -> bool:
        return self._ruling.access(place) != "none"

    def _take(self, path: str, place: str) -> None:
        if place in self._taken:
            raise _twice(path)
        self._taken.add(place)
        if self._ruling.access(place) != "write":
            self.outside[place] = path

    def _read(self, at: Reached, found: os.stat_result) -> FileState:
        if stat.S_ISLNK(found.st_mode):
            target = os.fsencode(os.readlink(at.name, dir_fd=at.folder))
            return FileState(target.decode(errors="replace"), found)
        self._bytes += found.st_size
        if not stat.S_ISREG(found.st_mode):
            raise _Unreadable(f"path `{at.path}` is not a file")
        if found.st_size > MAX_FILE_BYTES or self._bytes > MAX_TOTAL_BYTES:
            raise _Unreadable("it is too large")
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(at.name, flags, dir_fd=at.folder), "rb") as file:
            status, attributes = os.fstat(file.fileno()), _attributes(file.fileno())
            content = file.read(MAX_FILE_BYTES + 1)
        if not stat.S_ISREG(status.st_mode) or len(content) != found.st_size:
            raise _Unreadable("it changes while it is read")
        try:
            return FileState(content.decode(), status, attributes)
        except UnicodeDecodeError as exc:
            raise _Unreadable(f"{_encoding(content, exc)}; only UTF-8 can be changed") from None


class _Unreadable(Exception):
    """The text is the reason."""


def _is_locked(change: PlannedChange) -> bool:
    # Another file would take the place of this one, which the system does not ask its rights for.
    files = (file for file in (change.before, change.replaced) if file is not None)
    return any(not file.status.st_mode & 0o222 for file in files)


def _twice(path: str) -> BadPatch:
    return BadPatch(f"invalid patch: multiple operations target {path}")


def _encoding(content: bytes, error: UnicodeDecodeError) -> str:
    for mark, name in _MARKS:
        if content.startswith(mark):
            return f"it is {name}"
    if b"\0" in content:
        return "it is binary"
    return f"it is no UTF-8 from byte {error.start} on, but perhaps ISO-8859-1 or Windows-1252"


def _attributes(number: int) -> dict[str, bytes]:
    # Only Linux has them here, and not every file system of it.
    with suppress(AttributeError, OSError):
        return {name: os.getxattr(number, name) for name in os.listxattr(number)}
    return {}


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
