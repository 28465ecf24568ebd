"""The JSON Schema files: one a type, and two bundles.

Names and places are the reference's, since SDKs look for them: `v2/TurnStartParams.json`.
"""

from collections.abc import Mapping
from typing import Any

from pydantic_core import to_json

from protocol.export.contract import Contract
from protocol.export.definitions import REF, Definitions, reachable
from protocol.export.messages import CLIENT_REQUEST, SERVER_NOTIFICATION
from protocol.model import ABSENT, JsonObject

DIALECT = "http://json-schema.org/draft-07/schema#"
BUNDLE = "codex_app_server_protocol.schemas.json"
"""Everything; the types of `v2/` and what they need under `definitions.v2`."""
V2_BUNDLE = "codex_app_server_protocol.v2.schemas.json"
"""What requests, their answers and notifications need, in one flat table."""


def render_json_schema(contract: Contract) -> Mapping[str, str]:
    """Write every file: path to text."""
    definitions = {name: _public(schema) for name, schema in contract.definitions.items()}
    files = {
        f"{folder}{name}.json": _document(name, definitions)
        for folder, names in (("v1/", contract.v1), ("v2/", contract.v2), ("", contract.top))
        for name in sorted(names)
    }
    return {**files, **render_bundle_files(contract)}


def render_bundle_files(contract: Contract) -> Mapping[str, str]:
    """Write the two bundles: path to text."""
    definitions = {name: _public(schema) for name, schema in contract.definitions.items()}
    flat = reachable(definitions, contract.v2 | {CLIENT_REQUEST, SERVER_NOTIFICATION})
    return {
        BUNDLE: _bundle("CodexAppServerProtocol", _nested(contract, definitions)),
        V2_BUNDLE: _bundle(
            "CodexAppServerProtocolV2", {name: definitions[name] for name in sorted(flat)}
        ),
    }


def _document(name: str, definitions: Definitions) -> str:
    needed = reachable(definitions, [name]) - {name}
    document: JsonObject = {"$schema": DIALECT, "title": name, **definitions[name]}
    if needed:
        document["definitions"] = {other: definitions[other] for other in sorted(needed)}
    return _text(document)


def _nested(contract: Contract, definitions: Definitions) -> JsonObject:
    inner = reachable(definitions, contract.v2)
    moved = {
        name: _retarget(schema, {other: f"{REF}v2/{other}" for other in inner})
        for name, schema in definitions.items()
    }
    outer: JsonObject = {name: schema for name, schema in moved.items() if name not in inner}
    return {**outer, "v2": {name: moved[name] for name in sorted(inner)}}


def _bundle(title: str, definitions: JsonObject) -> str:
    return _text({"$schema": DIALECT, "title": title, "type": "object", "definitions": definitions})


def _retarget(value: Any, targets: Mapping[str, str]) -> Any:
    if isinstance(value, list):
        return [_retarget(element, targets) for element in value]
    if not isinstance(value, dict):
        return value
    changed = {key: _retarget(element, targets) for key, element in value.items()}
    if isinstance(value.get("$ref"), str):
        changed["$ref"] = targets.get(value["$ref"].removeprefix(REF), value["$ref"])
    return changed


def _public(value: Any) -> Any:
    if isinstance(value, list):
        return [_public(element) for element in value]
    if not isinstance(value, dict):
        return value
    return {key: _public(element) for key, element in value.items() if key != ABSENT}


def _text(document: JsonObject) -> str:
    return to_json(document, indent=2).decode() + "\n"
