"""A plan as clients are shown it, and as the diff of a turn takes it. No I/O.

Source: docs/tools.md, "Patches".
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from pydantic_core import to_json

from app_server.patch.plan import FileState, Plan, PlannedChange
from app_server.patch.turn_diff import Snapshot, Touched
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

ShownChange: TypeAlias = tuple[str, PatchChangeKind, str]
"""The path, the kind and the diff of one change."""


def shown_changes(plan: Plan) -> list[FileUpdateChange]:
    """Return the changes of a plan by path, bounded."""
    ordered = sorted(plan.changes, key=lambda one: one.path)
    return bounded_changes((one.path, _kind(one), _diff(one)) for one in ordered)


def bounded_changes(
    changes: Iterable[ShownChange], room: int = MAX_SHOWN_BYTES
) -> list[FileUpdateChange]:
    """Make changes of an item; what is above `room`, in bytes of JSON, is cut, and says so."""
    shown: list[FileUpdateChange] = []
    for path, kind, whole in changes:
        diff = _bounded(whole, room)
        room -= len(to_json(diff))
        shown.append(FileUpdateChange(path=path, kind=kind, diff=diff))
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


def touched(changes: Sequence[PlannedChange]) -> Iterator[Touched]:
    """Return what changes did to each place, in their order."""
    for change in changes:
        before = _snapshot(change.before)
        after = None if change.after is None else Snapshot(change.after, _mode(change.before))
        if change.move_place is None:
            yield Touched(change.place, before, after)
        else:
            yield Touched(change.place, before, None)
            replaced = _snapshot(change.replaced)
            yield Touched(change.move_place, replaced, after, moved_from=change.place)


def _kind(change: PlannedChange) -> PatchChangeKind:
    match change.kind:
        case "add":
            return AddPatchChangeKind()
        case "delete":
            return DeletePatchChangeKind()
        case "update":
            return UpdatePatchChangeKind(move_path=change.move_path)


def _diff(change: PlannedChange) -> str:
    before = "" if change.before is None else change.before.text
    if change.after is None:
        return before
    if change.kind == "add":
        return change.after
    return hunks(before, change.after, CONTEXT_LINES) + moved_to(change.move_path)


def _bounded(diff: str, room: int) -> str:
    size = len(to_json(diff))
    if size <= room:
        return diff
    kept = diff[: max(0, room * len(diff) // size)]
    return f"{kept}\n… {len(diff) - len(kept)} more characters are not shown"


def _snapshot(file: FileState | None) -> Snapshot | None:
    return None if file is None else Snapshot(file.text, _mode(file))


def _mode(file: FileState | None) -> str:
    if file is None:
        return "100644"
    return "120000" if file.is_link else "100755" if file.is_executable else "100644"
