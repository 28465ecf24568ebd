"""The TypeScript files: one a type and an index, made from the same definitions.

Types of `v2/` lie in `v2/`, and the index of the top folder has all of them, too. In types that
only the server writes a nullable member is always there, as the server writes it; in types that
clients write whatever may be missing is optional.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from protocol.contract.methods import METHODS, NOTIFICATIONS, SERVER_REQUESTS
from protocol.contract.specs import MethodSpec
from protocol.export.contract import Contract
from protocol.export.definitions import REF, reachable, references
from protocol.model import ABSENT, JsonObject

HEADER = "// Generated. Do not edit.\n"
JSON_VALUE = "JsonValue"
METHOD_MAPS = "MethodMaps"
JSON_VALUE_TYPE = (
    f"export type {JSON_VALUE} = string | number | boolean | null"
    f" | {JSON_VALUE}[] | {{ [key: string]: {JSON_VALUE} }};\n"
)
_IDENTIFIER = re.compile(r"[A-Za-z_$][\w$]*\Z")


def render_typescript(contract: Contract) -> Mapping[str, str]:
    """Write every file: path to text."""
    inner = reachable(contract.definitions, contract.v2)
    folders = {name: "v2" if name in inner else "" for name in contract.definitions}
    files = {
        _path(name, folders): _Module(name, contract, folders).text()
        for name in contract.definitions
    }
    files[f"{JSON_VALUE}.ts"] = f"{HEADER}\n{JSON_VALUE_TYPE}"
    maps, names = _method_maps(contract)
    imports = "".join(_import(name, "", folders) for name in names)
    files[f"{METHOD_MAPS}.ts"] = f"{HEADER}{imports}{maps}"
    files["v2/index.ts"] = (
        HEADER
        + "\n"
        + "".join(f'export type {{ {name} }} from "./{name}";\n' for name in sorted(inner))
    )
    tops = sorted({JSON_VALUE, *contract.definitions} - inner)
    files["index.ts"] = (
        HEADER
        + "\n"
        + "".join(f'export type {{ {name} }} from "./{name}";\n' for name in tops)
        + f'export type * from "./{METHOD_MAPS}";\n'
        + 'export * as v2 from "./v2";\nexport type * from "./v2";\n'
    )
    return files


def render_module(contract: Contract) -> str:
    """Write all types into one file."""
    types = "\n".join(_Module(name, contract, {}).declaration() for name in contract.definitions)
    maps, _ = _method_maps(contract)
    return f"{HEADER}\n{JSON_VALUE_TYPE}\n{types}{maps}"


class _Module:
    """One type's file."""

    def __init__(self, name: str, contract: Contract, folders: Mapping[str, str]) -> None:
        self._name = name
        self._schema = contract.definitions[name]
        self._folders = folders
        self._written_by_clients = name in contract.received
        self._uses_json = False

    def declaration(self) -> str:
        body = self._type(self._schema)
        return f"{_comment(self._schema, '')}export type {self._name} = {body};\n"

    def text(self) -> str:
        declaration = self.declaration()
        needs = sorted(references(self._schema) - {self._name})
        lines = [_import(name, self._name, self._folders) for name in needs]
        if self._uses_json:
            lines.append(_import(JSON_VALUE, self._name, self._folders))
        return f"{HEADER}{''.join(lines)}\n{declaration}"

    def _type(self, schema: Any, depth: int = 0) -> str:
        return " | ".join(dict.fromkeys(self._alternatives(schema, depth)))

    def _alternatives(self, schema: JsonObject, depth: int) -> Iterator[str]:
        if "$ref" in schema:
            yield schema["$ref"].removeprefix(REF)
        elif "allOf" in schema:
            yield from self._alternatives(schema["allOf"][0], depth)
        elif "oneOf" in schema or "anyOf" in schema:
            yield from self._union(schema, depth)
        elif "enum" in schema:
            yield from (f'"{word}"' for word in schema["enum"])
        elif isinstance(schema.get("type"), list):
            for kind in schema["type"]:
                yield from self._alternatives({**schema, "type": kind}, depth)
        else:
            yield self._single(schema, depth)

    def _union(self, schema: JsonObject, depth: int) -> Iterator[str]:
        parts = [self._type(part, depth) for part in schema.get("oneOf") or schema["anyOf"]]
        if schema.get("properties"):
            yield f"{self._object(schema, depth)} & ({' | '.join(parts)})"
        else:
            yield from parts

    def _single(self, schema: JsonObject, depth: int) -> str:
        match schema.get("type"):
            case "object":
                return self._object(schema, depth)
            case "array":
                return f"Array<{self._type(schema['items'], depth)}>"
            case "integer" | "number":
                return "number"
            case "string" | "boolean" | "null" as kind:
                return str(kind)
        self._uses_json = True
        return JSON_VALUE

    def _object(self, schema: JsonObject, depth: int) -> str:
        members = schema.get("properties") or {}
        extra = schema.get("additionalProperties")
        if not members:
            if extra is False:
                return "Record<string, never>"
            return (
                f"{{ [key: string]: {self._type({} if extra in (None, True) else extra, depth)} }}"
            )
        pad = "  " * (depth + 1)
        required = schema.get("required", ())
        lines = [
            f"{_comment(part, pad)}{pad}{self._member(name, part, name in required, depth + 1)};\n"
            for name, part in members.items()
        ]
        if extra not in (None, False):
            lines.append(f"{pad}[key: string]: unknown;\n")
        return "{\n" + "".join(lines) + "  " * depth + "}"

    def _member(self, name: str, schema: Any, required: bool, depth: int) -> str:
        optional = not required and (self._written_by_clients or schema.get(ABSENT, False))
        key = name if _IDENTIFIER.match(name) else f'"{name}"'
        return f"{key}{'?' if optional else ''}: {self._type(schema, depth)}"


def _method_maps(contract: Contract) -> tuple[str, list[str]]:
    """Write the maps from method to types, and name the types they need."""
    requests = _rows(METHODS, contract)
    questions = _rows(SERVER_REQUESTS, contract)
    news = {
        method: spec.params_name
        for method, spec in NOTIFICATIONS.items()
        if spec.params_name in contract.definitions
    }
    names = {name for row in (*requests.values(), *questions.values()) for name in row if name}
    text = (
        "\n/** Params and result of each request of a client. */\n"
        + _request_map("ClientRequests", requests)
        + "\n/** Params and result of each request of the server. */\n"
        + _request_map("ServerRequests", questions)
        + "\n/** Params of each notification of the server. */\n"
        + "export interface ServerNotifications {\n"
        + "".join(f'  "{method}": {name};\n' for method, name in news.items())
        + "}\n"
    )
    return text, sorted({*names, *news.values()})


def _rows(
    table: Mapping[str, MethodSpec], contract: Contract
) -> Mapping[str, tuple[str | None, str]]:
    return {
        method: (spec.params_name, spec.result_name)
        for method, spec in table.items()
        if spec.result_name in contract.roots
        and (spec.params_name is None or spec.params_name in contract.roots)
    }


def _request_map(name: str, rows: Mapping[str, tuple[str | None, str]]) -> str:
    lines = (
        f'  "{method}": {{ params: {params or "null"}; result: {result} }};\n'
        for method, (params, result) in rows.items()
    )
    return f"export interface {name} {{\n{''.join(lines)}}}\n"


def _path(name: str, folders: Mapping[str, str]) -> str:
    folder = folders.get(name, "")
    return f"{folder}/{name}.ts" if folder else f"{name}.ts"


def _import(name: str, importer: str, folders: Mapping[str, str]) -> str:
    here, there = folders.get(importer, ""), folders.get(name, "")
    way = "./" if here == there else "../" if here else f"./{there}/"
    return f'import type {{ {name} }} from "{way}{name}";\n'


def _comment(schema: Any, pad: str) -> str:
    text = schema.get("description") if isinstance(schema, dict) else None
    if not text:
        return ""
    lines = text.replace("*/", "*\\/").splitlines()
    if len(lines) == 1:
        return f"{pad}/** {lines[0]} */\n"
    return (
        f"{pad}/**\n" + "".join(f"{pad} * {line}".rstrip() + "\n" for line in lines) + f"{pad} */\n"
    )
