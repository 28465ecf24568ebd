"""From a patch and the files on the disk to what is to be written: all of it checked, none written.

The hunks of an update are all found before anything is said about the result. Where a choice of
place would change the result, there is none: it is an error. `plan_patch` reads files and blocks:
call it in a worker.
Source: docs/tools.md, "Patches".
"""

import os
import stat
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from app_server.patch.parse import (
    AddFile,
    BadPatch,
    DeleteFile,
    FileChange,
    Hunk,
    Lines,
    NotApplicable,
    Patch,
    UpdateFile,
)
from app_server.patch.unified import FileSnapshot
from app_server.permissions.sandbox.policy import EffectivePolicy, Ruling, resolved
from app_server.permissions.sandbox.roots import RootChanged
from app_server.runtime.files.reaching import NotReached, Reached, reached

_TYPOGRAPHIC = str.maketrans(
    {
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
        **dict.fromkeys("\u2018\u2019\u201a\u201b", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f", '"'),
        **dict.fromkeys(
            "\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " "
        ),
    }
)


def _same(line: str) -> str:
    return line


def _folded(line: str) -> str:
    return line.translate(_TYPOGRAPHIC).strip()


LOOSENESS: Sequence[Callable[[str], str]] = (_same, str.rstrip, str.strip, _folded)
"""Forms of a line that are compared, the strictest first: as it is, without white space at its end,
without any around it, and with typographic quotes, dashes and blanks as plain ones."""
LOOSEST = len(LOOSENESS) - 1


@dataclass(frozen=True, slots=True)
class FileText:
    """The lines of a file, each without its line feed, but with a carriage return if it has one."""

    lines: list[str]
    ends_with_newline: bool = True
    mark: str = ""
    """The byte order mark in front, if there is one."""

    @classmethod
    def of(cls, text: str) -> "FileText":
        """Take a text apart."""
        mark = "\ufeff" if text.startswith("\ufeff") else ""
        text = text.removeprefix("\ufeff")
        lines = text.split("\n")
        if lines[-1] == "":
            lines.pop()
            return cls(lines, True, mark)
        return cls(lines, False, mark)

    def joined(self) -> str:
        """Put the text together."""
        end = "\n" if self.ends_with_newline and self.lines else ""
        return self.mark + "\n".join(self.lines) + end


@dataclass(frozen=True, slots=True)
class Found:
    """Position of matched lines."""

    at: int
    looseness: int
    """Looseness of the comparison: an index of LOOSENESS."""


class LineIndex:
    """Finds lines of one file. What is compared is prepared once for each looseness."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._prepared: dict[int, _Prepared] = {}

    def find(
        self,
        wanted: Sequence[str],
        start: int,
        *,
        only_at_end: bool = False,
        loosest: int = LOOSEST,
    ) -> Found | None:
        """Return where `wanted`, at least a line, is first, not before `start`.

        It is compared as strictly as it can be found; not more loosely than `loosest`.
        """
        if only_at_end:
            start = max(start, len(self._lines) - len(wanted))
        for looseness in range(loosest + 1):
            if (at := self._prepare(looseness).first(wanted, start)) is not None:
                return Found(at, looseness)
        return None

    def all_of(self, line: str, start: int) -> list[int]:
        """Return all places of one line, not before `start`, as strictly as it can be found."""
        first = self.find([line], start)
        if first is None:
            return []
        places = self._prepare(first.looseness).places_of(line)
        return places[bisect_left(places, first.at) :]

    def _prepare(self, looseness: int) -> "_Prepared":
        if looseness not in self._prepared:
            self._prepared[looseness] = _Prepared(self._lines, LOOSENESS[looseness])
        return self._prepared[looseness]


class _Prepared:
    """The lines of a file as they are compared, and where each of them is."""

    def __init__(self, lines: Sequence[str], prepare: Callable[[str], str]) -> None:
        self._prepare = prepare
        self._lines = list(map(prepare, lines))
        self._places: dict[str, list[int]] = {}
        for at, line in enumerate(self._lines):
            self._places.setdefault(line, []).append(at)

    def places_of(self, line: str) -> list[int]:
        return self._places.get(self._prepare(line), [])

    def first(self, wanted: Sequence[str], start: int) -> int | None:
        """Look only where the rarest of the lines is."""
        places = list(map(self.places_of, wanted))
        rarest = min(range(len(wanted)), key=lambda index: len(places[index]))
        pattern = list(map(self._prepare, wanted))
        for place in places[rarest][bisect_left(places[rarest], start + rarest) :]:
            at = place - rarest
            if self._lines[at : at + len(pattern)] == pattern:
                return at
        return None


MAX_SHOWN_CHARS = 10_000
"""Of the lines that were not found."""

MAX_PLACES = 10
"""Matching places that an error about an ambiguous context names."""


def apply_hunks(path: str, text: str, hunks: Sequence[Hunk]) -> str:
    """Return what a file's text becomes; `path` is for errors.

    A line that stays, stays as the file has it. A line that comes gets the line end of its
    neighbour. Whether the file ends with a line feed does not change.

    Raises:
        NotApplicable: a hunk, or its context, is not there, or a context is in several places that
            would give different results.
    """
    file = FileText.of(text)
    finder = _Finder(path, file.lines)
    out: list[str] = []
    done = 0
    for hunk in hunks:
        at, lines = finder.place(hunk)
        out += file.lines[done:at]
        done = _write(lines, file.lines, at, out)
    out += file.lines[done:]
    if not file.ends_with_newline and _is_crlf(file.lines):
        # The last line had no end at all; it gets one if something follows it now.
        out[:-1] = [line if line.endswith("\r") else f"{line}\r" for line in out[:-1]]
        out[-1:] = [line.removesuffix("\r") for line in out[-1:]]
    return FileText(out, file.ends_with_newline, file.mark).joined()


def _is_crlf(lines: Sequence[str]) -> bool:
    return len(lines) > 1 and all(line.endswith("\r") for line in lines[:-1])


def _old(lines: Lines) -> list[str]:
    """Return what the file has to have."""
    return [text for mark, text in lines if mark != "+"]


def _write(lines: Lines, file: Sequence[str], at: int, out: list[str]) -> int:
    """Write a hunk that is at `at`, and return where the file goes on after it."""
    like = file[min(at, len(file) - 1)] if file else ""
    for mark, text in lines:
        if mark == "+":
            out.append(f"{text}\r" if like.endswith("\r") and not text.endswith("\r") else text)
            continue
        like = file[at]
        if mark == " ":
            out.append(like)
        at += 1
    return at


class _Finder:
    """Finds the hunks of one file, each after the one before."""

    def __init__(self, path: str, lines: Sequence[str]) -> None:
        self._path = path
        self._count = len(lines)
        self._index = LineIndex(lines)
        self._after = 0
        """End of the previous hunk."""

    def place(self, hunk: Hunk) -> tuple[int, Lines]:
        """Return where a hunk begins, and its lines: perhaps without empty ones at its end."""
        starts = self._starts(hunk.contexts)
        lines = hunk.lines
        while True:
            old = _old(lines)
            at = self._place(hunk, old, starts)
            if at is not None:
                self._after = at + len(old)
                return at, lines
            # Models end a hunk with an empty line that the file does not have.
            if len(lines) < 2 or lines[-1] != (" ", ""):
                wanted = "\n".join(_old(hunk.lines))[:MAX_SHOWN_CHARS]
                raise NotApplicable(f"Failed to find expected lines in {self._path}:\n{wanted}")
            lines = lines[:-1]

    def _starts(self, contexts: Sequence[str]) -> list[int]:
        """Return where the lines of a hunk may begin: behind each place of its first context.

        Of the contexts that follow the first, each is where it is first behind the one before.
        """
        if not contexts:
            return [self._after]
        places = self._index.all_of(contexts[0], self._after)
        if not places:
            raise self._without(contexts[0])
        starts = [place + 1 for place in places]
        for context in contexts[1:]:
            inner = [self._index.find([context], start) for start in starts]
            starts = list(dict.fromkeys(found.at + 1 for found in inner if found is not None))
            if not starts:
                raise self._without(context)
        return starts

    def _without(self, context: str) -> NotApplicable:
        return NotApplicable(f"Failed to find context '{context}' in {self._path}")

    def _place(self, hunk: Hunk, old: Sequence[str], starts: Sequence[int]) -> int | None:
        if not old:
            if hunk.at_end or not hunk.contexts:
                return self._count
            if len(starts) > 1:
                raise self._ambiguous(hunk, starts)
            return starts[0]
        first = self._index.find(old, starts[0], only_at_end=hunk.at_end)
        if first is None:
            return None
        # From a start that is not behind it the same place would be found.
        later = next((start for start in starts if start > first.at), None)
        if later is not None and self._index.find(old, later, loosest=first.looseness) is not None:
            raise self._ambiguous(hunk, starts)
        return first.at

    def _ambiguous(self, hunk: Hunk, starts: Sequence[int]) -> NotApplicable:
        more = "…" if len(starts) > MAX_PLACES else ""
        places = ", ".join(map(str, starts[:MAX_PLACES])) + more
        return NotApplicable(
            f"Context '{hunk.contexts[0]}' is in several places of {self._path} (lines {places}), "
            "and the change fits more than one of them. Add lines around the change, or a context "
            "that is there once"
        )


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

    @property
    def snapshot(self) -> FileSnapshot:
        """The file as git knows it."""
        mode = "120000" if self.is_link else "100755" if self.is_executable else "100644"
        return FileSnapshot(self.text, mode)

    def is_same(self, status: os.stat_result | None) -> bool:
        """Whether the file is unchanged since it was read."""
        return status is not None and _identity(status) == _identity(self.status)


Effect: TypeAlias = tuple[str, FileSnapshot | None, FileSnapshot | None, str | None]
"""A place, the file before and after (None: there is none), and the place from which it moved."""


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

    def effects(self) -> list[Effect]:
        """Return its effect on each place, in their order."""
        before = None if self.before is None else self.before.snapshot
        after = None
        if self.after is not None:
            after = FileSnapshot(self.after, "100644" if before is None else before.mode)
        if self.move_place is None:
            return [(self.place, before, after, None)]
        replaced = None if self.replaced is None else self.replaced.snapshot
        return [
            (self.place, before, None, None),
            (self.move_place, replaced, after, self.place),
        ]

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
    """Files outside of the sandbox policy, each with the path that leads there."""
    locked: tuple[str, ...] = ()
    """Paths of files without write permission; empty where nothing is confined."""


def plan_patch(
    patch: Patch,
    folder: str,
    sandbox_policy: EffectivePolicy,
    *,
    max_bytes: int = MAX_TOTAL_BYTES,
) -> Plan:
    """Find out what a patch does to files whose paths begin at `folder`, an absolute path; blocks.

    `sandbox_policy` is as settings have it: links are followed here. `max_bytes` bounds the files
    that are changed, together.

    Raises:
        BadPatch: two of its changes are about one file.
        NotApplicable: a file is not what the patch needs, may not be read, or is too large, or a
            folder of the sandbox is another one than it was; the text names it.
    """
    try:
        planner = _Planner(folder, Ruling(resolved(sandbox_policy)), max_bytes)
    except RootChanged as exc:
        raise NotApplicable(str(exc)) from None
    changes = tuple(planner.plan(change) for change in patch.changes)
    locked = [change.path for change in changes if _is_locked(change)]
    return Plan(changes, planner.outside, tuple(locked) if sandbox_policy.is_restricted else ())


class _Planner:
    def __init__(self, folder: str, ruling: Ruling, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
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
        if found.st_size > MAX_FILE_BYTES or self._bytes > self._max_bytes:
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
