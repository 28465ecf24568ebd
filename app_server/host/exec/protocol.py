"""Frames of the exec protocol, and its bounds. No I/O.

Control messages are JSON in text frames. The bytes of pipes are binary frames with a head of five
bytes: as JSON text every one of them would be escaped or grow by a third, and be copied twice more.
Source: docs/environments.md, "The exec protocol".
"""

import struct
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import to_json

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
