"""Images that a model is shown: what they are is known by their content, not by a name.

Knows: the beginnings of the four formats that models take. Does not know: where images come from.
Source: docs/tools.md, "Images"; the public Responses reference, "Images" (formats); RFC 2397; the
specifications of PNG (5.2, 11.2.2), GIF89a, WebP's container (RFC 9649) and JPEG (ITU T.81, B.1).
"""

import base64
import binascii
from collections.abc import Sequence

from app_server.models.catalogue.models import IMAGE
from protocol.model import Json, JsonObject

MAX_IMAGE_BYTES = 8 * 1024 * 1024

NOT_TAKEN = "[an image was here; this model takes none]"

_DATA = "data:"
_BASE64 = ";base64,"

_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Markers of segments that have the size of the image."""


class BadImage(Exception):
    """Something is no image that a model can be shown; the text is the reason."""


def image_url(content: bytes) -> str:
    """Return an image as a data URL.

    Raises:
        BadImage: it is too large, or none of the formats.
    """
    return f"{_DATA}{_checked_type(content)}{_BASE64}{base64.b64encode(content).decode()}"


def check_url(url: str) -> None:
    """Check an image in a `data:` URL; other URLs are left to the provider.

    Takes 3 ms for each MiB: call it in a worker.

    Raises:
        BadImage: it is too large, or none of the formats.
    """
    if not url.startswith(_DATA):
        return
    _, found, data = url.partition(_BASE64)
    if not found:
        raise BadImage("it is not written in base64")
    if len(data) > MAX_IMAGE_BYTES // 3 * 4 + 4:
        raise _too_large()
    try:
        content = base64.b64decode(data, validate=True)
    except binascii.Error:
        raise BadImage("it is not written in base64") from None
    _checked_type(content)


def without_images(history: Sequence[JsonObject]) -> list[JsonObject]:
    """Put a note in the place of every image, for a model that takes none."""
    return [_without(item) for item in history]


def _without(item: JsonObject) -> JsonObject:
    changed = {
        member: [_note_if_image(part) for part in parts]
        for member in ("content", "output")
        if isinstance(parts := item.get(member), list) and any(map(_is_image, parts))
    }
    return {**item, **changed} if changed else item


def _is_image(part: Json) -> bool:
    return isinstance(part, dict) and part.get("type") == f"input_{IMAGE}"


def _note_if_image(part: Json) -> Json:
    return {"type": "input_text", "text": NOT_TAKEN} if _is_image(part) else part


def _checked_type(content: bytes) -> str:
    if len(content) > MAX_IMAGE_BYTES:
        raise _too_large()
    kind = _type_of(content)
    if kind is None:
        raise BadImage("it is not a PNG, JPEG, GIF or WebP image")
    return kind


def _too_large() -> BadImage:
    return BadImage(f"it has more than {MAX_IMAGE_BYTES} bytes")


def _type_of(content: bytes) -> str | None:
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        is_whole = content[12:16] == b"IHDR" and len(content) >= 33 and _area(content[16:24], 4)
        return "image/png" if is_whole else None
    if content.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif" if _area(content[6:10], 2) else None
    if content.startswith(b"RIFF") and content[8:12] == b"WEBP":
        return "image/webp" if content[12:16] in (b"VP8 ", b"VP8L", b"VP8X") else None
    if content.startswith(b"\xff\xd8\xff"):
        return "image/jpeg" if _has_frame(content) else None
    return None


def _area(sizes: bytes, width: int) -> bool:
    """Whether two numbers of `width` bytes are there, and neither is zero."""
    return len(sizes) == 2 * width and any(sizes[:width]) and any(sizes[width:])


def _has_frame(content: bytes) -> bool:
    at = 2
    while at + 9 <= len(content) and content[at] == 0xFF:
        marker = content[at + 1]
        if marker == 0xFF:
            at += 1
        elif marker in _JPEG_FRAMES:
            return _area(content[at + 5 : at + 9], 2)
        else:
            at += 2 + int.from_bytes(content[at + 2 : at + 4])
    return False
