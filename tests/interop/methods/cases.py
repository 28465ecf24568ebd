"""The calls that are made of each method: from its schema, and from params that fit."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from app_server.rpc.dispatch import OWN_META
from protocol.contract.methods import METHODS
from tests.support.paths import ROOT

SCHEMA = ROOT / "schema" / "experimental" / "codex_app_server_protocol.schemas.json"

NO_THREAD = "01900000-0000-7000-8000-000000000000"

LAST = (
    "account/logout",
    "config/mcpServer/reload",
    "fuzzyFileSearch/sessionStop",
    "project/delete",
    "thread/delete",
    "thread/unsubscribe",
    "threadSection/delete",
)
"""What others should not come after."""


@dataclass(frozen=True, slots=True)
class Case:
    """One call."""

    method: str
    name: str
    params: Any

    def __str__(self) -> str:
        """Name it as the table of differences does."""
        return f"{self.method} {self.name}"


def methods() -> list[str]:
    """Return every method that the reference has, in the order in which they are called."""
    named = [name for name, spec in METHODS.items() if not spec.extension and name != "initialize"]
    return sorted(named, key=lambda name: (name in LAST, name))


def cases_of(method: str, valid: Any) -> Iterator[Case]:
    """Make the calls of one method; `valid` are params that fit."""
    members = _members(method)
    if members is None:
        yield Case(method, "valid", None)
        yield Case(method, "a number", 7)
        return
    required = _schema(method).get("required", [])
    yield Case(method, "valid", valid)
    yield Case(method, "a number", 7)
    yield Case(method, "no params", None)
    yield Case(method, "no members", {})
    base = valid if isinstance(valid, dict) else {}
    for name in required:
        yield Case(method, f"without {name}", {k: v for k, v in base.items() if k != name})
    for name in members:
        yield Case(method, f"{name} of a wrong type", {**base, name: _wrong(members[name])})
    if "threadId" in required:
        yield Case(method, "no thread id", {**base, "threadId": "no id"})
        yield Case(method, "an unknown thread", {**base, "threadId": NO_THREAD})
    if method != "process/spawn":
        # Whether the valid call's process has ended by then is chance.
        yield Case(method, "a member that nobody knows", {**base, "noSuchMember": 1})


@cache
def _document() -> Any:
    return json.loads(SCHEMA.read_text())


@cache
def _requests() -> dict[str, Any]:
    return {
        request["properties"]["method"]["enum"][0]: request["properties"].get("params", {})
        for request in _document()["definitions"]["ClientRequest"]["oneOf"]
    }


def _schema(method: str) -> dict[str, Any]:
    schema: dict[str, Any] = _resolved(_requests()[method])
    return schema


def _members(method: str) -> Mapping[str, Any] | None:
    """Return the members of a method's params by name; None if it takes none."""
    schema = _schema(method)
    if schema.get("type") == "null" or not schema:
        return None
    if "properties" not in schema:
        kinds = schema.get("oneOf") or schema.get("anyOf") or []
        schema = _resolved(kinds[0]) if kinds else schema
    members: dict[str, Any] = dict(schema.get("properties", {}))
    if METHODS[method].takes_operation and method not in OWN_META:
        # Codex does not know it there; tests/handlers/test_operations.py calls each badly.
        members.pop("_meta", None)
        if not members:
            return None
    return members


def _resolved(schema: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        found: Any = _document()
        for part in schema["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        schema = found
    return schema


def _wrong(schema: dict[str, Any]) -> Any:
    """Return a value that a member cannot have; one that may be anything gets it all the same."""
    kinds = json.dumps(_resolved(schema).get("type", ""))
    return {"wrong": True} if "string" in kinds or "integer" in kinds or "array" in kinds else 7
