"""A schema as one line, so that two generators' habits do not count: only what a peer may send.

    {cursor?: string|null, limit?!: uint32|null}

`?` may be missing, `!` needs the experimental opt-in, `=` gives a default that is not empty.
Members and alternatives are sorted; what surrounds a union is part of each alternative;
prose, titles and the order of keywords are gone.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from protocol.model import ABSENT, EXPERIMENTAL, EXTENSION

REF = "#/definitions/"
IGNORED = ("description", "title", "$schema", "definitions", ABSENT, EXTENSION)


def shape(schema: Any) -> str:
    """Write a schema as one line."""
    return "|".join(sorted(set(_alternatives(_plain(schema)))))


def _plain(schema: Any) -> dict[str, Any]:
    if schema is True:
        return {}
    plain = {key: value for key, value in schema.items() if key not in IGNORED}
    if len(plain.get("allOf", ())) == 1:
        plain = {**_plain(plain.pop("allOf")[0]), **plain}
    return plain


def _alternatives(schema: dict[str, Any]) -> Iterator[str]:
    unions = schema.get("oneOf"), schema.get("anyOf")
    if any(unions):
        around = {key: value for key, value in schema.items() if key not in ("oneOf", "anyOf")}
        for part in next(filter(None, unions)):
            yield from _alternatives(_merge(around, _plain(part)))
    elif "$ref" in schema:
        yield schema["$ref"].removeprefix(REF).removeprefix("v2/")
    elif "enum" in schema:
        yield from map(json.dumps, schema["enum"])
    elif isinstance(schema.get("type"), list):
        for kind in schema["type"]:
            yield from _alternatives({**schema, "type": kind})
    else:
        yield _single(schema)


def _merge(around: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    if "properties" not in around:
        return {**around, **part}
    return {
        **around,
        **part,
        "properties": {**around["properties"], **part.get("properties", {})},
        "required": [*around.get("required", ()), *part.get("required", ())],
    }


def _single(schema: dict[str, Any]) -> str:
    match schema.get("type"):
        case "object":
            return _object(schema)
        case "array":
            return f"[{shape(schema['items'])}]"
        case "integer" | "number":
            low = schema.get("minimum", 0)
            return str(schema["format"]) + (f">={low:g}" if low else "")
        case "string":
            return "string" + (f">={schema['minLength']}" if "minLength" in schema else "")
        case None:
            return "any"
    return str(schema["type"])


def _object(schema: dict[str, Any]) -> str:
    extra = schema.get("additionalProperties")
    members = schema.get("properties") or {}
    if not members and extra is not False:
        return f"map<{shape({} if extra is None else extra)}>"
    shared = sorted(name for name, part in members.items() if EXTENSION not in _marks(part))
    parts = [_member(name, members[name], schema.get("required", ())) for name in shared]
    if extra is not None:
        parts.append("closed" if extra is False else f"...{shape(extra)}")
    return "{" + ", ".join(parts) + "}"


def _marks(schema: Any) -> Any:
    return schema if isinstance(schema, dict) else ()


def _member(name: str, schema: Any, required: Any) -> str:
    plain = _plain(schema)
    marks = ("" if name in required else "?") + ("!" if plain.pop(EXPERIMENTAL, False) else "")
    default = plain.pop("default", None)
    value = f"={json.dumps(default, sort_keys=True)}" if default else ""
    return f"{name}{marks}: {shape(plain)}{value}"


def shapes(definitions: Mapping[str, Any]) -> dict[str, str]:
    """Write every definition as one line."""
    return {name: shape(definition) for name, definition in definitions.items()}
