"""A planned patch as a line of JSON, from the exec server to its client. No I/O.

Source: docs/environments.md, "The exec protocol".
"""

import os

from pydantic_core import PydanticSerializationError

from app_server.patch.parse import NotApplicable
from app_server.patch.plan import FileState, Plan, PlannedChange
from protocol.exec.files import FileText, PatchPlanned, PlannedFile
from protocol.model import WireModel

MAX_PATCH_BYTES = 16 * 1_048_576
"""Of a patch, as JSON."""

MAX_PLAN_BYTES = 32 * 1_048_576
"""Of a plan as JSON: the files that it changes as they are, and as they will be."""

TOO_LARGE = f"The files are too large for another environment: more than {MAX_PLAN_BYTES} bytes"


def line_of(message: WireModel) -> bytes:
    """Render one message."""
    return message.model_dump_json().encode() + b"\n"


def plan_line(plan: Plan) -> bytes:
    """Render a plan.

    Raises:
        NotApplicable: a path is not Unicode.
    """
    files = [
        PlannedFile(
            kind=change.kind,
            named=change.named,
            path=change.path,
            place=change.place,
            before=_text_of(change.before),
            after=change.after,
            move_path=change.move_path,
            move_place=change.move_place,
            replaced=_text_of(change.replaced),
        )
        for change in plan.changes
    ]
    try:
        return line_of(PatchPlanned(files=files, outside=plan.outside, locked=list(plan.locked)))
    except (PydanticSerializationError, UnicodeError):
        raise NotApplicable("A path is not Unicode") from None


def plan_of(planned: PatchPlanned) -> Plan:
    """Make a plan of what an exec server said; of a file it has text and mode alone."""
    changes = [
        PlannedChange(
            file.kind,
            file.named,
            file.path,
            file.place,
            _state_of(file.before),
            file.after,
            file.move_path,
            file.move_place,
            _state_of(file.replaced),
        )
        for file in planned.files
    ]
    return Plan(tuple(changes), planned.outside, tuple(planned.locked))


def _text_of(file: FileState | None) -> FileText | None:
    return None if file is None else FileText(text=file.text, mode=file.status.st_mode)


def _state_of(file: FileText | None) -> FileState | None:
    if file is None:
        return None
    return FileState(file.text, os.stat_result((file.mode, *([0] * 9))))
