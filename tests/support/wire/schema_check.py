"""Whether what a server says is what the committed schema says, to the last member.

Every client of the tests checks every message: against the stable schema unless it opted in.
jsonschema-rs says whether a message fits, as jsonschema takes fifty times as long; where one does
not, jsonschema says why.
"""

import json
from functools import cache, lru_cache
from typing import Any

import jsonschema
import jsonschema_rs
from jsonschema.exceptions import best_match
from pydantic_core import from_json

from protocol.contract.methods import METHODS, NOTIFICATIONS, SERVER_REQUESTS
from protocol.export.definitions import REF, Definitions, reachable
from protocol.export.json_schema import BUNDLE
from protocol.model import JsonObject
from tests.support.paths import ROOT

RELAYED = ("mcpServer/tool/call", "mcpServer/resource/read")
"""Methods whose errors may be those of an MCP server, with whatever it put into `data`."""

SCHEMA = ROOT / "schema"
_V2 = "v2/"
"""Begins the names of most types in references: their definitions are a table in the table."""


def load_bundle(variant: str) -> Any:
    """Read a committed bundle: `stable` or `experimental`."""
    return from_json((SCHEMA / variant / BUNDLE).read_bytes())


def check_value(variant: str, name: str, value: Any) -> None:
    """Fail unless the value is of the type, without members that the type does not have."""
    if _validator(variant, name).is_valid(value):
        return
    problem = best_match(jsonschema.Draft7Validator(_schema(variant, name)).iter_errors(value))
    reason = f"{problem.json_path}: {problem.message}" if problem else "only jsonschema-rs says so"
    raise AssertionError(f"not a {variant} {name}: {reason}: {value}")


class MessageCheck:
    """One connection, as far as it takes to know the type of each message."""

    def __init__(self) -> None:
        self._variant = "stable"
        self._asked: dict[Any, str] = {}

    def sent(self, text: str) -> None:
        """Remember what was asked, to know the answer by its id."""
        try:
            messages = json.loads(text)
        except ValueError:
            return
        for message in messages if isinstance(messages, list) else [messages]:
            match message:
                case {"id": str() | int() as request_id, "method": str() as method}:
                    self._asked[request_id] = method
                    if method == "initialize":
                        self._variant = _variant_of(message)

    def received(self, message: Any) -> None:
        """Fail unless the message, or every message of a batch, is as the schema says."""
        for part in message if isinstance(message, list) else [message]:
            self._check(part)

    def _check(self, message: Any) -> None:
        members = message.keys() - {"jsonrpc"}
        if members == {"id", "error"}:
            name, value = "JSONRPCErrorError", message["error"]
            if self._asked.get(message["id"]) not in RELAYED:
                check_value(self._variant, "ErrorData", value["data"])
        elif members == {"id", "result"}:
            name, value = METHODS[self._asked[message["id"]]].result_name, message["result"]
        else:
            kind = {"id"} if "id" in members else {"emittedAtMs"}
            if "seq" in members and self._variant == "experimental":
                kind.add("seq")
            assert members == {"method", "params"} | kind, f"unknown kind of message: {members}"
            table = SERVER_REQUESTS if "id" in members else NOTIFICATIONS
            name, value = table[message["method"]].params_name or "", message["params"]
        check_value(self._variant, name, value)


def _variant_of(initialize: Any) -> str:
    match initialize:
        case {"params": {"capabilities": {"experimentalApi": True}}}:
            return "experimental"
    return "stable"


@lru_cache(maxsize=64)  # A run needs some 200, of 90 KB each; a test needs few.
def _validator(variant: str, name: str) -> jsonschema_rs.Draft7Validator:
    return jsonschema_rs.Draft7Validator(_schema(variant, name), validate_formats=False)


def _schema(variant: str, name: str) -> JsonObject:
    """Return the type with what it needs: of the whole bundle a validator takes 4 ms to be made."""
    definitions = _definitions(variant)
    root = name if name in definitions else f"{_V2}{name}"
    outer: JsonObject = {}
    inner: JsonObject = {}
    for needed in reachable(definitions, [root]):
        if needed.startswith(_V2):
            inner[needed.removeprefix(_V2)] = definitions[needed]
        else:
            outer[needed] = definitions[needed]
    return {"definitions": {**outer, "v2": inner}, "$ref": f"{REF}{root}"}


@cache
def _definitions(variant: str) -> Definitions:
    outer = _strict(load_bundle(variant)["definitions"])
    inner = outer.pop("v2")
    return {**outer, **{f"{_V2}{name}": schema for name, schema in inner.items()}}


def _strict(schema: Any) -> Any:
    """Allow no member that is not written down.

    The schema itself lets them pass, since newer peers may send them.
    """
    if isinstance(schema, list):
        return [_strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    parts = schema.get("anyOf") or schema.get("oneOf")
    if parts and "properties" in schema:
        shared = schema["properties"]
        merged = [{**part, "properties": {**shared, **part["properties"]}} for part in parts]
        return {"anyOf": _strict(merged), "required": schema.get("required", [])}
    strict = {key: _strict(part) for key, part in schema.items()}
    if schema.get("type") == "object" and "additionalProperties" not in schema:
        strict["additionalProperties"] = False
    return strict
