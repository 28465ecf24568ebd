"""JSON Schema of config.toml (draft 7), for editors that check and complete it.

Source: docs/config.md, "In an editor".
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from app_server.config.key_check import EACH, KNOWN_TREE, Tree
from app_server.config.known_keys import (
    IN_PLACE_OF_TABLES,
    KNOWN,
    LISTS_OF_TABLES,
    WITHOUT_EFFECT,
    Form,
)

Shape: TypeAlias = Mapping[str, Any]
"""A JSON Schema."""

DESCRIPTION = (
    "Settings of app-server (docs/config.md). Values whose rule a schema cannot say, such as two "
    "settings that exclude each other, are found by `app-server config check`."
)
OF_CODEX = {"description": "Of Codex; without effect in this server."}
OF_OTHER_PROGRAMS = {"description": "Of Codex's other programs; this server does not read it."}


def config_schema() -> Shape:
    """Return the schema of a file without unknown keys."""
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "config.toml of app-server",
        "description": DESCRIPTION,
        **_table("", KNOWN_TREE),
    }


def _value(path: str, below: Tree) -> Shape:
    if not below:
        if (form := KNOWN.get(path)) is not None:
            return _shape(form)
        return OF_CODEX if path in WITHOUT_EFFECT else OF_OTHER_PROGRAMS
    shape = _table(f"{path}.", below)
    if (instead := IN_PLACE_OF_TABLES.get(path)) is not None:
        shape = {"anyOf": [_shape(instead), shape]}
    return _list_of(shape) if path in LISTS_OF_TABLES else shape


def _table(prefix: str, below: Tree) -> Shape:
    shapes = {key: _value(prefix + key, inner) for key, inner in sorted(below.items())}
    # The names of the others are the user's.
    others = shapes.pop(EACH, False)
    return {"type": "object", "properties": shapes, "additionalProperties": others}


def _shape(form: Form) -> Shape:
    match form:
        case str():
            return FORMS[form]
        case (int(least), int(most)):
            return {"type": "integer", "minimum": least, "maximum": most}
    return {"type": "string", "enum": list(form)}


def _list_of(shape: Shape) -> Shape:
    return {"type": "array", "items": shape}


def _map_of(shape: Shape) -> Shape:
    return {"type": "object", "additionalProperties": shape}


_STRING: Shape = {"type": "string"}
_BOOLEAN: Shape = {"type": "boolean"}
_INTEGER: Shape = {"type": "integer", "minimum": 0}
_ACCESS = _shape(("read", "write", "deny"))
_SURFACES = _shape(("code_mode", "deferred", "direct"))
_EVENTS = _shape(
    (
        "approvalRequested",
        "inputRequested",
        "turnCompleted",
        "turnFailed",
        "wakeLost",
        "budgetReached",
        "signalDead",
    )
)
_COLLECTOR: Shape = {
    "type": "object",
    "properties": {
        "endpoint": _STRING,
        "headers": _map_of(_STRING),
        "protocol": _shape(("binary",)),
    },
    "required": ["endpoint"],
}
_SUGGESTION: Shape = {"type": "object", "properties": {"type": _STRING, "id": _STRING}}

FORMS: Mapping[str, Shape] = {
    "amount": {"type": ["number", "string"]},
    "anything": {},
    "boolean": _BOOLEAN,
    "currency": {"type": "string", "pattern": "^[A-Z]{3}$"},
    "domains": _map_of(_shape(("allow", "deny"))),
    "exporter": {
        "anyOf": [
            _shape(("none",)),
            {
                "type": "object",
                "properties": {"otlp-http": _COLLECTOR},
                "required": ["otlp-http"],
                "additionalProperties": False,
            },
        ]
    },
    "filesystem": {
        **_map_of({"anyOf": [_ACCESS, _map_of(_ACCESS)]}),
        "properties": {"glob_scan_max_depth": _INTEGER},
    },
    "integer": _INTEGER,
    "list of events": _list_of(_EVENTS),
    "list of strings": _list_of(_STRING),
    "list of surfaces": _list_of(_SURFACES),
    "map of booleans": _map_of(_BOOLEAN),
    "map of strings": _map_of(_STRING),
    "nothing": {"not": {}},
    "seconds": {"type": "number", "minimum": 0},
    "string": _STRING,
    "string or strings": {"anyOf": [_STRING, _list_of(_STRING)]},
    "suggestions": {
        "type": "object",
        "properties": {
            key: _list_of({"anyOf": [_STRING, _SUGGESTION]})
            for key in ("discoverables", "disabled_tools")
        },
    },
    "switch": {"anyOf": [_BOOLEAN, {"type": "object"}]},
    "table": {"type": "object"},
}
"""What stands in known_keys.py, by name."""
