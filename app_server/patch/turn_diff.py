"""Diff of a turn: one git diff against the files as they were before it.

No repository is asked: the files of before are kept here. No I/O.
Source: docs/tools.md, "Patches".
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic_core import to_json

from app_server.patch.unified import NO_BLOB, blob_name, hunks

CONTEXT_LINES = 3

MAX_DIFF_BYTES = 1_000_000
"""Of one diff as JSON writes it, so that a notification with it stays within 1 MiB."""

MAX_KEPT_CHARS = 64 * 1_048_576
"""Of the files of one turn, before and after; what is above is not shown."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A file at one time."""

    text: str
    mode: str = "100644"
    """As git writes it."""


@dataclass(frozen=True, slots=True)
class Touched:
    """Effect of one change on one path; None means no file."""

    path: str
    before: Snapshot | None
    after: Snapshot | None
    moved_from: str | None = None
    """The path whose file it was."""


@dataclass(slots=True)
class _File:
    first: Snapshot | None
    now: Snapshot | None
    origin: str | None = None
    """The path from which it was moved here; None: it was not."""
    part: tuple[str, int] | None = None
    """Cached diff of the path and its bytes as JSON; None when it is out of date."""


class TurnDiff:
    """The files that a turn has touched."""

    def __init__(self) -> None:
        self._files: dict[str, _File] = {}
        self._kept_chars = 0
        self._origins: set[str] = set()
        self._unseen: set[str] = set()
        """Touched, and not kept."""

    def touch(self, changes: Sequence[Touched]) -> None:
        """Note changes that were made, in their order."""
        for change in changes:
            self._touch(change)

    def render(self) -> str:
        """Return the diff; "" if all is as it was. It ends with a note if something is left out."""
        moved = {file.origin for file in self._files.values() if self._is_move(file)}
        shown = [
            (file.origin if self._is_move(file) else path, path)
            for path, file in self._files.items()
            if path not in moved and file.first != file.now
        ]
        parts: list[str] = []
        left_out, room = len(self._unseen), MAX_DIFF_BYTES
        for _, path in sorted(shown):
            text, size = self._part(path)
            if size > room:
                left_out += 1
            else:
                room -= size
                parts.append(text)
        if left_out:
            files = "file is" if left_out == 1 else "files are"
            parts.append(f"# {left_out} more changed {files} not shown: too large\n")
        return "".join(parts)

    def _touch(self, change: Touched) -> None:
        known = self._files.get(change.path)
        if change.path in self._unseen:
            return
        if known is None:
            self._kept_chars += _chars(change.before)
        self._kept_chars += _chars(change.after) - (_chars(known.now) if known else 0)
        if self._kept_chars > MAX_KEPT_CHARS:
            first = known.first if known else change.before
            self._kept_chars -= _chars(first) + _chars(change.after)
            self._files.pop(change.path, None)
            self._unseen.add(change.path)
            return
        file = self._files[change.path] = known or _File(change.before, None)
        file.now, file.part = change.after, None
        if change.after is not None:
            file.origin = None
        if change.moved_from is not None and file.first is None:
            source = self._files.get(change.moved_from)
            file.origin = source.origin or change.moved_from if source else None
            self._origins.add(change.moved_from)
        # What was made from the file at this path may be shown in another way now.
        if change.path in self._origins:
            for other in self._files.values():
                if other.origin == change.path:
                    other.part = None

    def _is_move(self, file: _File) -> bool:
        """Whether a file is shown as one that was there before, under another name."""
        source = self._files.get(file.origin) if file.origin is not None else None
        if source is None or source is file:
            return False
        return source.first is not None and source.now is None and file.now is not None

    def _part(self, path: str) -> tuple[str, int]:
        file = self._files[path]
        if file.part is None:
            text = self._rendered(path, file)
            file.part = text, len(to_json(text))
        return file.part

    def _rendered(self, path: str, file: _File) -> str:
        before, after, old = file.first, file.now, path
        if file.origin is not None and self._is_move(file):
            old = file.origin
            before = self._files[old].first
        head = [f"diff --git a/{old} b/{path}\n"]
        if before is None and after is not None:
            head.append(f"new file mode {after.mode}\n")
        if before is not None and after is None:
            head.append(f"deleted file mode {before.mode}\n")
        if before is not None and after is not None and before.text == after.text:
            head += ["similarity index 100%\n", f"rename from {old}\n", f"rename to {path}\n"]
            return "".join(head)
        head.append(f"index {_blob(before)}..{_blob(after)}\n")
        body = hunks(before.text if before else "", after.text if after else "", CONTEXT_LINES)
        if body:
            head.append("--- /dev/null\n" if before is None else f"--- a/{old}\n")
            head.append("+++ /dev/null\n" if after is None else f"+++ b/{path}\n")
        return "".join(head) + body


def _chars(file: Snapshot | None) -> int:
    return len(file.text) if file else 0


def _blob(file: Snapshot | None) -> str:
    return blob_name(file.text.encode()) if file else NO_BLOB
