"""Input schemas of tools with file arguments, rewritten to take paths from the model. No I/O.

Source: docs/apps.md, "Files".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from protocol.model import Json, JsonObject

SENTENCE = "The absolute path of a local file, which will be uploaded."


@dataclass(frozen=True, slots=True)
class FileBounds:
    """The bounds on the files of an argument (JSON Schema 2020-12, Validation, 6.4)."""

    min_items: int = 0
    max_items: int | None = None
    unique_items: bool = False

    @classmethod
    def of(cls, definition: JsonObject, name: str) -> Self:
        """Read the bounds of an argument of a tool; a value of another type is no bound."""
        part = _properties(definition).get(name)
        if not isinstance(part, dict) or not _is_array(part):
            return cls()
        unique = part.get("uniqueItems") is True
        return cls(_count(part, "minItems") or 0, _count(part, "maxItems"), unique)

    def shown(self) -> JsonObject:
        """Return the members of a schema that say so."""
        shown: JsonObject = {"minItems": self.min_items} if self.min_items else {}
        if self.max_items is not None:
            shown["maxItems"] = self.max_items
        if self.unique_items:
            shown["uniqueItems"] = True
        return shown


def with_paths(definition: JsonObject, file_params: Sequence[str]) -> JsonObject:
    """Return a tool whose file arguments are texts, or arrays of texts.

    Of what the schema said of them the description stays, with a sentence of ours behind it, and
    how many elements an array has.
    """
    schema, properties = definition.get("inputSchema"), _properties(definition)
    masked = {
        name: _path(properties[name], FileBounds.of(definition, name))
        for name in file_params
        if name in properties
    }
    if not isinstance(schema, dict) or not masked:
        return definition
    return {**definition, "inputSchema": {**schema, "properties": {**properties, **masked}}}


def _properties(definition: JsonObject) -> JsonObject:
    schema = definition.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return properties if isinstance(properties, dict) else {}


def _count(part: JsonObject, key: str) -> int | None:
    value = part.get(key)
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if is_count else None


def _path(given: Json, bounds: FileBounds) -> JsonObject:
    part: JsonObject = given if isinstance(given, dict) else {}
    description = _described(part.get("description"))
    if not _is_array(part):
        return {"type": "string", "description": description}
    items: JsonObject = {"type": "array", "items": {"type": "string"}}
    return {**items, **bounds.shown(), "description": description}


def _is_array(part: JsonObject) -> bool:
    kind = part.get("type")
    return "items" in part or kind == "array" or (isinstance(kind, list) and "array" in kind)


def _described(description: Json) -> str:
    if not isinstance(description, str) or not description.strip():
        return SENTENCE
    return description if SENTENCE in description else f"{description} {SENTENCE}"
