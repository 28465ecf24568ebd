"""Texts that a client adds to what the model knows, beside what the user says.

The word of the application becomes a message of the developer. What is not trusted becomes one of
the user that says so, in a frame that the text cannot close. A text that the model has already, and
that nothing has replaced since, is not repeated. No I/O.
Source: docs/wire.md, "What the model is sent".
"""

from collections.abc import Mapping, Sequence

from app_server.models.prompt.request import message, only_text
from protocol.model import JsonObject
from protocol.turns.requests import AdditionalContextEntry

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
