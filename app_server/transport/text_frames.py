"""Text messages in a frame each, read and written without the parser of websockets. No I/O.

Nearly every message is one. The parser takes frames that come in any pieces, and its writer masks
and extends them; both take several times as long for what needs none of that.
Source: RFC 6455, section 5.2; docs/architecture.md, "What a request costs".
"""

try:
    from websockets.speedups import apply_mask
except ImportError:  # where websockets was installed without its part in C
    from websockets.utils import apply_mask

_TEXT = 0x81
"""The first byte of a text message in a single frame, without extensions."""
_MASKED = 0x80
"""Stands in the second byte of what a client sends, beside the length."""
_LONGER, _LONGEST = 126, 127
"""Lengths that say that the real one follows, in two bytes or in eight."""
_HEAD = 6
"""Bytes of a client's shortest head: two, and the mask."""
_LONGER_HEAD = _HEAD + 2


def whole_texts(data: bytes, position: int, *, most: int, max_bytes: int) -> list[bytes]:
    """Return the frames from `position` on that are text messages of a client and have come whole.

    At most `most`, and none behind another kind of frame or a payload above `max_bytes` or 64 KiB.
    The frames keep their heads and masks.
    """
    frames: list[bytes] = []
    while len(frames) < most and position + _HEAD <= len(data) and data[position] == _TEXT:
        size, length = _HEAD, data[position + 1] - _MASKED
        if length == _LONGER:
            size, length = _LONGER_HEAD, int.from_bytes(data[position + 2 : position + 4], "big")
        elif not 0 <= length < _LONGER:
            break
        end = position + size + length
        if end > len(data) or length > max_bytes:
            break
        frames.append(data[position:end])
        position = end
    return frames


def payload_of(frame: bytes) -> bytes:
    """Return what a frame of `whole_texts` holds; whether it is UTF-8 is not looked at."""
    size = _LONGER_HEAD if frame[1] == _MASKED | _LONGER else _HEAD
    return apply_mask(frame[size:], frame[size - 4 : size])


def text_frame(payload: bytes) -> bytes:
    """Write a message of the server, of any length, as one frame."""
    length = len(payload)
    if length < _LONGER:
        return b"%c%c%b" % (_TEXT, length, payload)
    if length < 2**16:
        return b"%c%c%b%b" % (_TEXT, _LONGER, length.to_bytes(2, "big"), payload)
    return b"%c%c%b%b" % (_TEXT, _LONGEST, length.to_bytes(8, "big"), payload)
