"""Cuts what a client sends on a WebSocket into steps of a bounded number of frames. No I/O.

One read of a socket may hold tens of thousands of the smallest frames, and taking all of them at
once would keep the event loop for seconds. Of frames that are no whole text messages only the
lengths are read here; what is wrong with them is for who parses them.
Source: RFC 6455, section 5.2; docs/architecture.md, "What a request costs".
"""

from collections.abc import Iterator
from typing import TypeAlias

from app_server.transport.text_frames import whole_texts

FRAMES_AT_ONCE = 64
"""Frames that end in one step."""

_HEAD_END = b"\r\n\r\n"
_SHORT_HEAD = 2
_MASK_BYTES = 4
_LENGTH_BYTES = {126: 2, 127: 8}
"""That follow the first two, by what stands in the second one."""
_LAST, _OPCODE = 0x80, 0x0F
"""Bits of the first byte."""
_FIRST_CONTROL = 8
"""Opcodes from here on may stand between the frames of a message."""

Step: TypeAlias = bytes | list[bytes]
"""What a parser is to read, or text messages: a whole frame each, with its head and mask."""


class FrameSteps:
    """What one client sends, from the first byte of its HTTP request on."""

    def __init__(self, max_message_bytes: int) -> None:
        """Text messages of more bytes are for the parser, which refuses them."""
        self._max_message_bytes = max_message_bytes
        self._in_request = True
        self._head = bytearray()
        """Of the frame that has begun, or the newest bytes of the request."""
        self._payload = 0
        """Bytes that are still to come of the frame whose head is complete."""
        self._in_message = False
        """Whether the newest frame of data was not the last one of its message."""

    def cut(self, data: bytes) -> Iterator[Step]:
        """Give all of `data` in steps, in each of which at most FRAMES_AT_ONCE frames end.

        The HTTP request is a step of its own where frames follow it at once.
        """
        position = 0
        if self._in_request:
            position = self._end_of_request(data)
            yield data[:position]
        while position < len(data):
            if texts := self._texts(data, position):
                yield texts
                position += sum(map(len, texts))
                continue
            start = position
            for _ in range(FRAMES_AT_ONCE):
                position = self._end_of_frame(data, position)
                if position == len(data):
                    break
            yield data[start:position]

    def _texts(self, data: bytes, position: int) -> list[bytes]:
        if self._payload or self._head or self._in_message:
            return []
        most, max_bytes = FRAMES_AT_ONCE, self._max_message_bytes
        return whole_texts(data, position, most=most, max_bytes=max_bytes)

    def _end_of_request(self, data: bytes) -> int:
        seen = bytes(self._head) + data
        position = seen.find(_HEAD_END)
        if position < 0:
            self._head[:] = seen[1 - len(_HEAD_END) :]
            return len(data)
        end = position + len(_HEAD_END) - len(self._head)
        self._head.clear()
        self._in_request = False
        return end

    def _end_of_frame(self, data: bytes, position: int) -> int:
        """Return where the frame that stands at `position` ends, or the data."""
        if not self._payload and not self._head and len(data) - position >= _SHORT_HEAD:
            # Most of these are short and come whole, too.
            length = data[position + 1] & 0x7F
            mask = _MASK_BYTES if data[position + 1] & 0x80 else 0
            end = position + _SHORT_HEAD + mask + length
            if length not in _LENGTH_BYTES and end <= len(data):
                self._has_begun(data[position])
                return end
        while not self._payload:
            missing = _head_size(self._head) - len(self._head)
            if not missing:
                self._payload = _payload_size(self._head)
                self._has_begun(self._head[0])
                self._head.clear()
                break
            if position == len(data):
                return position
            self._head += data[position : position + missing]
            position = min(position + missing, len(data))
        taken = min(self._payload, len(data) - position)
        self._payload -= taken
        return position + taken

    def _has_begun(self, first: int) -> None:
        """Take note of a frame by its first byte."""
        if first & _OPCODE < _FIRST_CONTROL:
            self._in_message = not first & _LAST


def _head_size(head: bytearray) -> int:
    """Return how many bytes a frame's head has, as far as its beginning tells."""
    if len(head) < _SHORT_HEAD:
        return _SHORT_HEAD
    masked, length = head[1] & 0x80, head[1] & 0x7F
    return _SHORT_HEAD + _LENGTH_BYTES.get(length, 0) + (_MASK_BYTES if masked else 0)


def _payload_size(head: bytearray) -> int:
    length = head[1] & 0x7F
    size = _LENGTH_BYTES.get(length)
    return length if size is None else int.from_bytes(head[_SHORT_HEAD : _SHORT_HEAD + size], "big")
