"""How a tool that takes files is shown to the model: it gives paths, and we give the files. No I/O.

Source: docs/apps.md, "Files".
"""

from collections.abc import Sequence

from protocol.model import Json, JsonObject

SENTENCE = "The absolute path of a local file, which will be uploaded."

_KEPT_OF_ARRAYS = ("minItems", "maxItems", "uniqueItems")


def with_paths(definition: JsonObject, file_params: Sequence[str]) -> JsonObject:
    """Return a tool whose file arguments are texts, or arrays of texts.

    Of what the schema said of them the description stays, with a sentence of ours behind it, and
    how many elements an array has.
    """
    schema = definition.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(schema, dict) or not isinstance(properties, dict):
        return definition
    masked = {name: _path(properties[name]) for name in file_params if name in properties}
    return {**definition, "inputSchema": {**schema, "properties": {**properties, **masked}}}


def _path(given: Json) -> JsonObject:
    part: JsonObject = given if isinstance(given, dict) else {}
    description = _described(part.get("description"))
    if not _is_array(part):
        return {"type": "string", "description": description}
    kept = {key: part[key] for key in _KEPT_OF_ARRAYS if key in part}
    return {"type": "array", "items": {"type": "string"}, **kept, "description": description}


def _is_array(part: JsonObject) -> bool:
    kind = part.get("type")
    return "items" in part or kind == "array" or (isinstance(kind, list) and "array" in kind)


def _described(description: Json) -> str:
    if not isinstance(description, str) or not description.strip():
        return SENTENCE
    return description if SENTENCE in description else f"{description} {SENTENCE}"
