"""From what a user sends to what a model reads."""

import base64
import mimetypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio.to_thread

from app_server.extensions.contract.turns import PLUGIN_SCHEME
from app_server.models.prompt.images import MAX_IMAGE_BYTES, BadImage, check_url, image_url
from app_server.models.prompt.request import message, only_text
from app_server.runtime.files.opening import BrokenFiles, read_text
from protocol.log.rollout import SignalMark
from protocol.model import JsonObject
from protocol.turns.items import (
    AudioUserInput,
    ImageUserInput,
    LocalAudioUserInput,
    LocalImageUserInput,
    MentionUserInput,
    SkillUserInput,
    TextUserInput,
    UserInput,
)
from protocol.turns.requests import AdditionalContextEntry

SKILL_FILE = "SKILL.md"

MAX_SOUND_BYTES = 20 * 1024 * 1024
"""Bytes of a local sound; a larger one is named to the model instead of played."""


@dataclass(frozen=True, slots=True)
class TurnInput:
    """Input of a user, as the wire and as the model have it."""

    content: Sequence[UserInput]
    items: Sequence[JsonObject]
    client_id: str | None = None
    digest: str | None = None
    """Of the request; with it and `client_id` the same input is accepted once."""
    signals: Sequence[SignalMark] = ()
    """One for each item, where the input is signals and no user's."""


async def user_message(inputs: Sequence[UserInput]) -> list[JsonObject]:
    """Make the Responses items for one user message, and for the skills in it; none for no input.

    Local files are read now, so that the message does not change when they do.
    """
    content: list[JsonObject] = []
    skills: list[JsonObject] = []
    for part in inputs:
        if isinstance(part, SkillUserInput) and (text := await _skill(part)) is not None:
            skills.append(skill_message(part.name, part.path, text))
        else:
            content.append(await _content(part))
    return [*([_message(*content)] if content else []), *skills]


def _message(*content: JsonObject) -> JsonObject:
    return {"type": "message", "role": "user", "content": list(content)}


def skill_message(name: str, path: str, text: str) -> JsonObject:
    """Make the message that shows a model a skill; `path` is its file, or its URI."""
    shown = f"<skill>\n<name>{name}</name>\n<path>{path}</path>\n{text}\n</skill>"
    return _message(_text(shown))


async def _skill(skill: SkillUserInput) -> str | None:
    """Return the text of a skill's file; None for one that cannot be read."""
    path = Path(skill.path)
    if path.name != SKILL_FILE:
        return None
    try:
        return await anyio.to_thread.run_sync(read_text, path.parent, path.name)
    except BrokenFiles:
        return None


async def _content(part: UserInput) -> JsonObject:
    match part:
        case TextUserInput():
            return _text(part.text)
        case ImageUserInput():
            return await _given_image(part)
        case LocalImageUserInput():
            try:
                url = await anyio.to_thread.run_sync(_read_image, Path(part.path))
            except BadImage as exc:
                return _text(f"[image {part.path} could not be read: {exc}]")
            return _image(ImageUserInput(type="image", url=url, detail=part.detail))
        case AudioUserInput():
            return _only(type="input_audio", audio_url=part.url, file_id=part.file_id)
        case LocalAudioUserInput():
            sound = await anyio.to_thread.run_sync(_read_sound, Path(part.path))
            if sound is None:
                return _text(f"[audio {part.path} could not be read]")
            return _only(type="input_audio", audio_url=sound)
        case MentionUserInput():
            # As users write a link in a text, which is the form that models are shown.
            sign = "@" if part.path.startswith(PLUGIN_SCHEME) else "$"
            return _text(f"[{sign}{part.name}]({part.path})")
        case SkillUserInput():
            return _text(f"[{part.type} {part.name}: {part.path}]")


def _text(text: str) -> JsonObject:
    return {"type": "input_text", "text": text}


def _image(part: ImageUserInput) -> JsonObject:
    return _only(type="input_image", image_url=part.url, file_id=part.file_id, detail=part.detail)


def _only(**members: str | None) -> JsonObject:
    return {name: value for name, value in members.items() if value is not None}


async def _given_image(part: ImageUserInput) -> JsonObject:
    if part.url is not None:
        try:
            await anyio.to_thread.run_sync(check_url, part.url)
        except BadImage as exc:
            return _text(f"[an image could not be read: {exc}]")
    return _image(part)


def _read_image(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_IMAGE_BYTES + 1)
    except OSError as exc:
        raise BadImage(exc.strerror or "it cannot be opened") from None
    return image_url(content)


def _read_sound(path: Path) -> str | None:
    kind, _ = mimetypes.guess_type(path)
    if kind is None or not kind.startswith("audio/"):
        return None
    try:
        with path.open("rb") as file:
            content = file.read(MAX_SOUND_BYTES + 1)
    except OSError:
        return None
    if len(content) > MAX_SOUND_BYTES:
        return None
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


# Texts that a client adds to what the model knows, beside what the user says.
# The word of the application becomes a message of the developer. What is not trusted becomes one
# of the user that says so, in a frame that the text cannot close. A text that the model has
# already, and that nothing has replaced since, is not repeated. No I/O.
# Source: docs/wire.md, "What the model is sent".


UNTRUSTED = "untrusted_context"


def context_items(
    context: Mapping[str, AdditionalContextEntry], history: Sequence[JsonObject]
) -> list[JsonObject]:
    """Make the items that the model has not seen, in the order of the sources' names."""
    items = [_item(source, entry) for source, entry in sorted(context.items())]
    return [item for item in items if not _is_known(item, history)]


def context_chars(context: Mapping[str, AdditionalContextEntry]) -> int:
    """Count the characters of all texts and their names."""
    return sum(
        len(source) + len(entry.name or "") + len(entry.value) for source, entry in context.items()
    )


def _item(source: str, entry: AdditionalContextEntry) -> JsonObject:
    if entry.kind == "application":
        return message("developer", f"<{source}>{entry.value}</{source}>")
    text = entry.value.replace(f"</{UNTRUSTED}", f"<\\/{UNTRUSTED}")
    name = (entry.name or source).replace('"', "'")
    return message("user", f'<{UNTRUSTED} source="{name}">\n{text}\n</{UNTRUSTED}>')


def _is_known(item: JsonObject, history: Sequence[JsonObject]) -> bool:
    opening = only_text(item).partition(">")[0] + ">"
    for known in reversed(history):
        if known.get("role") == item["role"] and only_text(known).startswith(opening):
            return only_text(known) == only_text(item)
    return False
