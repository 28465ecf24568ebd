"""A patch as clients are shown it: planned, and while a model still writes it. No I/O.

Of a patch that is still written nothing is checked: one that makes no sense is refused when it is
complete.
Source: docs/tools.md, "Patches".
"""

from collections.abc import Iterable
from io import StringIO

from pydantic_core import to_json

from app_server.patch.parse import ADD, BEGIN, CONTEXT, DELETE, END, MAX_FILES, MOVE, UPDATE
from app_server.patch.plan import PlannedChange
from app_server.patch.unified import hunks
from protocol.turns.items import (
    AddPatchChangeKind,
    DeletePatchChangeKind,
    FileUpdateChange,
    PatchChangeKind,
    UpdatePatchChangeKind,
)

CONTEXT_LINES = 1
"""Around each change of an item; the diff of a turn shows three."""

MAX_SHOWN_BYTES = 800_000
"""Of the diffs of one item as JSON writes them, so that an item fits into one message."""


def shown_changes(changes: Iterable[PlannedChange]) -> list[FileUpdateChange]:
    """Return planned changes by path, bounded."""
    ordered = sorted(changes, key=lambda one: one.path)
    return bounded_changes(_shown(one) for one in ordered)


def bounded_changes(
    changes: Iterable[FileUpdateChange], room: int = MAX_SHOWN_BYTES
) -> list[FileUpdateChange]:
    """Cut the diffs of an item's changes above `room`, in bytes of JSON; a cut diff says so."""
    shown: list[FileUpdateChange] = []
    for change in changes:
        change.diff = _bounded(change.diff, room)
        room -= len(to_json(change.diff))
        shown.append(change)
    return shown


def moved_to(path: str | None) -> str:
    """Return what ends the diff of an update that moves the file to a path."""
    return "" if path is None else f"\n\nMoved to: {path}"


def summary(changes: Iterable[PlannedChange]) -> str:
    """Render for the model what was done: a line a file, with its path as the patch has it."""
    letters = {"add": "A", "update": "M", "delete": "D"}
    lines = [
        f"{letters[kind]} {change.named}\n"
        for kind in letters
        for change in changes
        if change.kind == kind
    ]
    return "".join(lines)


def _shown(change: PlannedChange) -> FileUpdateChange:
    before = "" if change.before is None else change.before.text
    kind: PatchChangeKind
    match change.kind:
        case "add":
            kind, diff = AddPatchChangeKind(), change.after or ""
        case "delete":
            kind, diff = DeletePatchChangeKind(), before
        case "update":
            kind = UpdatePatchChangeKind(move_path=change.move_path)
            diff = hunks(before, change.after or "", CONTEXT_LINES) + moved_to(change.move_path)
    return FileUpdateChange(path=change.path, kind=kind, diff=diff)


def _bounded(diff: str, room: int) -> str:
    size = len(to_json(diff))
    if size <= room:
        return diff
    kept = diff[: max(0, room * len(diff) // size)]
    return f"{kept}\n… {len(diff) - len(kept)} more characters are not shown"


MAX_EARLY_BYTES = 64_000
"""Of the diffs of one notification as JSON writes them: each has all that there is so far, and
comes again twice a second."""


class StreamedPatch:
    """The text of one patch, piece by piece."""

    def __init__(self) -> None:
        self._rest: list[str] = []
        """Pieces of a line that has not ended yet."""
        self._is_open = False
        """Whether the patch has begun, and not ended."""
        self._files: dict[str, _File] = {}
        """By path; the first MAX_FILES of them."""
        self._file: _File | None = None

    def feed(self, text: str) -> bool:
        """Take more text; returns whether any change is another one than before."""
        if "\n" not in text:
            self._rest.append(text)
            return False
        *lines, rest = ("".join(self._rest) + text).split("\n")
        self._rest = [rest]
        changed = [self._take(line.removesuffix("\r")) for line in lines]
        return any(changed)

    def changes(self) -> list[FileUpdateChange]:
        """Return the changes so far, by path as the patch has it, within MAX_EARLY_BYTES."""
        shown = (file.shown(path) for path, file in sorted(self._files.items()))
        return bounded_changes(shown, MAX_EARLY_BYTES)

    def _take(self, line: str) -> bool:
        if not self._is_open:
            self._is_open = line.strip() == BEGIN
            return False
        for header in (ADD, DELETE, UPDATE):
            if line.startswith(header):
                return self._begin(header, line.removeprefix(header).strip())
        if line.strip() == END:
            self._is_open, self._file = False, None
            return False
        return self._file is not None and self._file.take(line)

    def _begin(self, header: str, path: str) -> bool:
        self._file = None
        if not path or (path not in self._files and len(self._files) == MAX_FILES):
            return False
        self._file = self._files[path] = _File(header)
        return True


class _File:
    def __init__(self, header: str) -> None:
        self._header = header
        self._diff = StringIO()
        self._move_path: str | None = None

    def take(self, line: str) -> bool:
        if self._header == DELETE:
            return False
        if self._header == ADD:
            if not line.startswith("+"):
                return False
            self._diff.write(f"{line[1:]}\n")
        elif line.startswith(MOVE) and not self._diff.tell():
            self._move_path = line.removeprefix(MOVE).strip()
        else:
            if not self._diff.tell() and not line.startswith(CONTEXT):
                self._diff.write(f"{CONTEXT}\n")
            self._diff.write(f"{line or ' '}\n")
        return True

    def shown(self, path: str) -> FileUpdateChange:
        text = self._diff.getvalue()
        if self._header == ADD:
            return FileUpdateChange(path=path, kind=AddPatchChangeKind(), diff=text)
        if self._header == DELETE:
            return FileUpdateChange(path=path, kind=DeletePatchChangeKind(), diff=text)
        kind = UpdatePatchChangeKind(move_path=self._move_path)
        return FileUpdateChange(path=path, kind=kind, diff=text + moved_to(self._move_path))
