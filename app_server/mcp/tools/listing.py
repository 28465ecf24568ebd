"""A server's `initialize` result and its tools, their schemas cut down to what model APIs take.

Source: docs/mcp.md, "Tools and the model".
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from app_server.mcp.bounds import json_bytes
from protocol.model import Json, JsonObject


@dataclass(frozen=True, slots=True)
class Listing:
    """A server's introduction and its tools, as it sent them."""

    server_info: JsonObject | None = None
    capabilities: Json = None
    instructions: str | None = None
    protocol_version: str | None = None
    """Of MCP, in which it was given."""
    tools: Mapping[str, JsonObject] = field(default_factory=dict)
    """Raw name to tool, in the server's order; of tools with one name the first."""
    tools_meta: JsonObject | None = None
    sizes: Mapping[str, int] = field(default_factory=dict, compare=False)
    """Raw name to the bytes that description and parameters of the tool take as JSON."""
    parameters: Mapping[str, JsonObject] = field(default_factory=dict, compare=False)
    """Raw name to the input schema as it is declared to models."""

    @classmethod
    def of(
        cls, hello: JsonObject, tools: list[JsonObject], tools_meta: JsonObject | None
    ) -> "Listing":
        """Read the answers to `initialize` and `tools/list`; what makes no sense is left out.

        Measuring thousands of tools takes a while: for worker threads.
        """
        info, instructions = hello.get("serverInfo"), hello.get("instructions")
        version = hello.get("protocolVersion")
        return cls(
            server_info=info if isinstance(info, dict) else None,
            capabilities=hello.get("capabilities"),
            instructions=instructions if isinstance(instructions, str) else None,
            protocol_version=version if isinstance(version, str) else None,
        ).with_tools(tools, tools_meta)

    def with_tools(self, tools: list[JsonObject], meta: JsonObject | None) -> "Listing":
        """Return the same introduction with a new list of tools; see `of`."""
        named = _by_name(tools)
        parameters = {n: tool_parameters(tool.get("inputSchema")) for n, tool in named.items()}
        sizes = {
            name: json_bytes([described(tool), parameters[name]]) - len("[,]")
            for name, tool in named.items()
        }
        return replace(self, tools=named, tools_meta=meta, sizes=sizes, parameters=parameters)

    def opts_into(self, capability: str) -> bool:
        """Whether the server declared an experimental capability."""
        capabilities = self.capabilities if isinstance(self.capabilities, dict) else {}
        experimental = capabilities.get("experimental")
        return isinstance(experimental, dict) and capability in experimental


def _by_name(tools: list[JsonObject]) -> dict[str, JsonObject]:
    named: dict[str, JsonObject] = {}
    for tool in tools:
        if isinstance(name := tool.get("name"), str):
            named.setdefault(name, tool)
    return named


def described(tool: JsonObject) -> str:
    """Return a tool's description; empty when it has none."""
    description = tool.get("description")
    return description if isinstance(description, str) else ""


def is_for_model(tool: JsonObject) -> bool:
    """Whether the model may see and call a tool: unless `_meta.ui.visibility` leaves it out.

    Clients may, for user interfaces that a tool brought.
    Source: MCP Apps (SEP-1865), "Visibility".
    """
    meta = tool.get("_meta")
    interface = meta.get("ui") if isinstance(meta, dict) else None
    visibility = interface.get("visibility") if isinstance(interface, dict) else None
    return not isinstance(visibility, list) or "model" in visibility


def read_only_hint(tool: JsonObject | None) -> bool | None:
    """Return a tool's `readOnlyHint`, None when it has none."""
    annotations = (tool or {}).get("annotations")
    hint = annotations.get("readOnlyHint") if isinstance(annotations, dict) else None
    return hint if isinstance(hint, bool) else None


_KEPT = frozenset({"type", "description", "enum", "required", "$ref"})
_KEPT_OF_ARRAYS = ("minItems", "maxItems", "uniqueItems")
_LISTS_OF_SCHEMAS = ("anyOf", "oneOf", "allOf")
_MAPS_OF_SCHEMAS = ("properties", "$defs", "definitions")

MAX_DEPTH = 64
"""Levels of nesting; what lies deeper may be anything."""


def reduce_schema(schema: Json, depth: int = 0) -> JsonObject:
    """Keep the structure of a JSON Schema and drop what models trip over.

    `const` becomes a one-value `enum`, an array without items gets strings, properties are sorted.
    What is no schema at all becomes the schema that allows anything. What has nothing to drop is
    returned itself.
    """
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return {}
    if _KEPT.issuperset(schema) and not _allows_arrays(schema.get("type")):
        # Most are such ones: thousands of tools take a quarter less memory without a copy of each.
        return schema
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
    reduced = {**reduce_schema(input_schema)}
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
