"""From what a user sends to what a model reads."""

import base64
import mimetypes
from collections.abc import Sequence
from pathlib import Path

import anyio.to_thread

from protocol.items import (
    ImageUserInput,
    LocalImageUserInput,
    MentionUserInput,
    SkillUserInput,
    TextUserInput,
    UserInput,
)
from protocol.model import JsonObject

MAX_IMAGE_BYTES = 20 * 1024 * 1024
"""Bytes of a local image; a larger one is named to the model instead of shown."""


async def user_message(inputs: Sequence[UserInput]) -> list[JsonObject]:
    """Make the Responses items for one user message; nothing for no input.

    Local images are read now, so that the message does not change when the file does.
    """
    content = [await _content(part) for part in inputs]
    return [{"type": "message", "role": "user", "content": content}] if content else []


async def _content(part: UserInput) -> JsonObject:
    match part:
        case TextUserInput():
            return _text(part.text)
        case ImageUserInput():
            return _image(part.url, part.detail)
        case LocalImageUserInput():
            url = await anyio.to_thread.run_sync(_read_image, Path(part.path))
            if url is None:
                return _text(f"[image {part.path} could not be read]")
            return _image(url, part.detail)
        case SkillUserInput() | MentionUserInput():
            return _text(f"[{part.type} {part.name}: {part.path}]")


def _text(text: str) -> JsonObject:
    return {"type": "input_text", "text": text}


def _image(url: str, detail: str | None) -> JsonObject:
    image: JsonObject = {"type": "input_image", "image_url": url}
    return image if detail is None else {**image, "detail": detail}


def _read_image(path: Path) -> str | None:
    kind, _ = mimetypes.guess_type(path)
    if kind is None or not kind.startswith("image/"):
        return None
    try:
        with path.open("rb") as file:
            content = file.read(MAX_IMAGE_BYTES + 1)
    except OSError:
        return None
    if len(content) > MAX_IMAGE_BYTES:
        return None
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
