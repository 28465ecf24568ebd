"""Frames of the exec protocol, and its bounds. No I/O.

Control messages are JSON in text frames. The bytes of pipes are binary frames with a head of five
bytes: as JSON text every one of them would be escaped or grow by a third, and be copied twice more.
Source: docs/environments.md, "The exec protocol".
"""

import os
import struct
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, to_json

from app_server.patch.parse import NotApplicable
from app_server.patch.plan import FileState, Plan, PlannedChange
from protocol.exec.files import FileText, PatchPlanned, PlannedFile
from protocol.exec.processes import ExecMessage, StreamName
from protocol.model import WireModel

VERSION = 1

MAX_FRAME_BYTES = 1024 * 1024
"""One WebSocket message, either way."""

CHUNK_BYTES = 64 * 1024
"""Of a pipe, in one frame that we send."""

WINDOW_BYTES = 1024 * 1024
"""Of one stream of one process, sent and not yet credited."""

CREDIT_BYTES = WINDOW_BYTES // 2
"""Bytes taken after which a credit is sent: small messages cost no second frame."""

STREAMS: Mapping[int, StreamName] = {0: "stdin", 1: "stdout", 2: "stderr"}
CODES: Mapping[StreamName, int] = {name: code for code, name in STREAMS.items()}

NOT_FOUND = -32601
INVALID = -32602
BUSY = -32001
START_FAILED = -32000

_HEAD = struct.Struct(">BI")

Message = TypeVar("Message", bound=WireModel)


class ProtocolBroken(Exception):
    """The other side does not keep to the protocol; the connection ends."""


def pack(stream: StreamName, process_id: int, data: bytes | memoryview) -> bytes:
    """Make a binary frame; no data means the end of the stream."""
    return _HEAD.pack(CODES[stream], process_id) + data


def unpack(frame: bytes) -> tuple[StreamName, int, bytes]:
    """Take a binary frame apart: stream, process, data.

    Raises:
        ProtocolBroken: it is none.
    """
    if len(frame) < _HEAD.size:
        raise ProtocolBroken("a binary frame without a head")
    code, process_id = _HEAD.unpack_from(frame)
    if code not in STREAMS:
        raise ProtocolBroken(f"a binary frame of stream {code}")
    return STREAMS[code], process_id, frame[_HEAD.size :]


def render(**members: Any) -> str:
    """Make a text frame: `id`, `method`, `params`, `result`, `error`."""
    rendered = {
        name: value.model_dump(mode="json") if isinstance(value, WireModel) else value
        for name, value in members.items()
    }
    return to_json(rendered).decode()


def parse(text: str) -> ExecMessage:
    """Read a text frame.

    Raises:
        ProtocolBroken: it is no message.
    """
    try:
        return ExecMessage.model_validate_json(text)
    except ValidationError as exc:
        raise ProtocolBroken("a text frame that is no message") from exc


def read_params(kind: type[Message], message: ExecMessage) -> Message:
    """Read the parameters of a notification, or of an answer's result.

    Raises:
        ProtocolBroken: they make no sense.
    """
    try:
        return kind.model_validate(message.params)
    except ValidationError as exc:
        raise ProtocolBroken(f"bad parameters of {message.method}") from exc


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
    """Build a plan from an answer of an exec server; files have text and mode alone."""
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
