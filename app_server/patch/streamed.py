"""A patch while a model still writes it: what its lines so far say of each file. No I/O.

Nothing is checked: a patch that makes no sense is refused when it is complete.
Source: docs/tools.md, "Patches".
"""

from io import StringIO

from app_server.patch.parse import ADD, BEGIN, CONTEXT, DELETE, END, MAX_FILES, MOVE, UPDATE
from app_server.patch.shown import ShownChange, bounded_changes, moved_to
from protocol.turns.items import (
    AddPatchChangeKind,
    DeletePatchChangeKind,
    FileUpdateChange,
    UpdatePatchChangeKind,
)

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

    def shown(self, path: str) -> ShownChange:
        text = self._diff.getvalue()
        if self._header == ADD:
            return path, AddPatchChangeKind(), text
        if self._header == DELETE:
            return path, DeletePatchChangeKind(), text
        kind = UpdatePatchChangeKind(move_path=self._move_path)
        return path, kind, text + moved_to(self._move_path)
