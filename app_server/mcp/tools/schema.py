"""Tool schemas cut down to what model APIs understand.

Source: docs/mcp.md, "Tools and the model".
"""

from protocol.model import Json, JsonObject

_KEPT = frozenset({"type", "description", "enum", "required", "$ref"})
_KEPT_OF_ARRAYS = ("minItems", "maxItems", "uniqueItems")
_LISTS_OF_SCHEMAS = ("anyOf", "oneOf", "allOf")
_MAPS_OF_SCHEMAS = ("properties", "$defs", "definitions")

MAX_DEPTH = 64
"""Levels of nesting; what lies deeper may be anything."""


def reduce_schema(schema: Json, depth: int = 0) -> JsonObject:
    """Keep the structure of a JSON Schema and drop what models trip over.

    `const` becomes a one-value `enum`, an array without items gets strings, properties are sorted.
    What is no schema at all becomes the schema that allows anything.
    """
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return {}
    reduced: JsonObject = {}
    for key, value in schema.items():
        if key in _KEPT:
            reduced[key] = value
        elif key in _MAPS_OF_SCHEMAS and isinstance(value, dict):
            reduced[key] = {name: reduce_schema(value[name], depth + 1) for name in sorted(value)}
        elif key in _LISTS_OF_SCHEMAS and isinstance(value, list):
            reduced[key] = [reduce_schema(element, depth + 1) for element in value]
        elif key == "items" or (key == "additionalProperties" and isinstance(value, dict)):
            reduced[key] = reduce_schema(value, depth + 1)
        elif key == "additionalProperties" and isinstance(value, bool):
            reduced[key] = value
    if "const" in schema:
        reduced["enum"] = [schema["const"]]
        reduced.setdefault("type", _type_of(schema["const"]))
    if _allows_arrays(reduced.get("type")):
        reduced.setdefault("items", {"type": "string"})
        reduced |= {key: schema[key] for key in _KEPT_OF_ARRAYS if key in schema}
    return reduced


def tool_parameters(input_schema: Json) -> JsonObject:
    """Reduce a tool's input schema; the result is always an object's schema."""
    reduced = reduce_schema(input_schema)
    reduced.setdefault("type", "object")
    if reduced["type"] == "object":
        reduced.setdefault("properties", {})
    return reduced


def _type_of(value: Json) -> str:
    match value:
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case dict():
            return "object"
    return "null"


def _allows_arrays(kind: Json) -> bool:
    return kind == "array" or (isinstance(kind, list) and "array" in kind)
