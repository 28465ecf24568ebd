"""mcp: the schemas and declarations of tools that models see, and the listings of servers."""

import json
from dataclasses import replace
from typing import Any

import pytest

from app_server.extensions.contract.registration import RuntimeMetadata
from app_server.mcp import bounds
from app_server.mcp.bounds import json_bytes
from app_server.mcp.catalog.config import (
    ServerConfig,
    StdioTransport,
)
from app_server.mcp.tools import table as declarations
from app_server.mcp.tools.listing import Listing, read_only_hint, reduce_schema, tool_parameters
from app_server.mcp.tools.naming import RawName, VisibleName
from app_server.mcp.tools.table import McpToolTable, McpToolTables, Tool, declare, declare_found
from protocol.model import JsonObject
from tests.support.harness import (
    claim,
)


@claim("mcp:schema")
def test_schemas_are_cut_down_to_what_models_take() -> None:
    assert reduce_schema(
        {
            "$schema": "s",
            "title": "t",
            "type": "object",
            "description": "d",
            "properties": {
                "z": {"type": "integer", "minimum": 1, "default": 5},
                "a": {"const": "k"},
                "l": {"type": ["array", "null"]},
                "m": {
                    "type": "array",
                    "items": {"type": "string", "format": "uri"},
                    "minItems": 1,
                    "maxItems": 2,
                    "uniqueItems": True,
                    "contains": {},
                },
                "o": {"type": "object", "minItems": 1},
                "u": {"anyOf": [{"$ref": "#/$defs/D"}, {"oneOf": [{"type": "null"}]}]},
                "t": True,
            },
            "required": ["a"],
            "additionalProperties": {"type": "string", "maxLength": 3},
            "$defs": {"D": {"enum": [1, 2], "examples": [1]}},
            "allOf": "nonsense",
            "definitions": 5,
        }
    ) == {
        "type": "object",
        "description": "d",
        "properties": {
            "a": {"enum": ["k"], "type": "string"},
            "l": {"type": ["array", "null"], "items": {"type": "string"}},
            "m": {
                "type": "array",
                "items": {"type": "string"},
                "minItems": 1,
                "maxItems": 2,
                "uniqueItems": True,
            },
            "o": {"type": "object"},
            "t": {},
            "u": {"anyOf": [{"$ref": "#/$defs/D"}, {"oneOf": [{"type": "null"}]}]},
            "z": {"type": "integer"},
        },
        "required": ["a"],
        "additionalProperties": {"type": "string"},
        "$defs": {"D": {"enum": [1, 2]}},
    }
    kinds = {True: "boolean", 5: "integer", 1.5: "number"}
    assert {key: reduce_schema({"const": key})["type"] for key in kinds} == kinds
    assert reduce_schema({"const": [1]})["type"] == "array"
    assert reduce_schema({"const": {}})["type"] == "object"
    assert reduce_schema({"const": None})["type"] == "null"
    assert reduce_schema({"additionalProperties": False}) == {"additionalProperties": False}


def test_parameters_are_always_an_object() -> None:
    assert tool_parameters(None) == {"type": "object", "properties": {}}
    assert tool_parameters({"type": "string"}) == {"type": "string"}
    listed = {"description": "Takes nothing."}
    assert tool_parameters(listed) == {**listed, "type": "object", "properties": {}}
    assert listed == {"description": "Takes nothing."}
    deep: Any = {"type": "object"}
    for _ in range(200):
        deep = {"type": "object", "properties": {"a": deep}}
    assert len(json.dumps(tool_parameters(deep))) < 4000


def test_a_long_introduction_is_cut() -> None:
    raw, name = RawName("s", "t"), VisibleName("mcp__s", "t")
    config = ServerConfig("s", StdioTransport("x"))
    table = McpToolTable([Tool(raw, name, {}, config)], {"mcp__s": "ü" * 4000})
    description = declare(table)[0]["description"]
    assert len(description.encode()) < 4200
    assert description.endswith("… [truncated]")
    assert declare(McpToolTable(table.tools, {}))[0] == {
        "type": "namespace",
        "name": "mcp__s",
        "description": "Tools in the mcp__s namespace.",
        "tools": [
            {
                "type": "function",
                "name": "t",
                "description": "",
                "strict": False,
                "parameters": {"type": "object", "properties": {}},
            }
        ],
    }


def server(name: str, *plugins: str) -> ServerConfig:
    metadata = RuntimeMetadata(plugin_display_names=plugins)
    return ServerConfig(name, StdioTransport("x"), metadata=metadata)


def three_servers() -> list[tuple[ServerConfig, Listing]]:
    schema = {"type": "object", "properties": {"ä": {"type": "string", "description": '"\\\n'}}}
    told = [{"name": f"t{n}", "description": "ü\t" * n, "inputSchema": schema} for n in range(40)]
    bare: list[JsonObject] = [
        {"name": "a.b"},
        {"name": "a-b"},
        {"name": "n" * 200, "description": 5},
    ]
    return [
        (server("long", "P", 'the "q"'), Listing.of({"instructions": "ü" * 4000}, told, None)),
        (server("a.b", "P"), Listing.of({}, bare, None)),
        (server("a-b"), Listing.of({"instructions": 'say "hi"\n'}, told[:1], None)),
    ]


@claim("mcp:request-bound")
def test_the_bytes_of_a_declaration_are_those_that_are_sent() -> None:
    listed = three_servers()
    table = McpToolTables().make("direct", listed)
    declared = declare(table)
    assert sum(table.declared_bytes().values()) == json_bytes(declared) - len("[]") + len(",")
    for config, listing in listed:
        one = McpToolTables().make("direct", [(config, listing)])
        (entry,) = declare(one)
        assert one.declared_bytes() == {config.name: json_bytes(entry) + len(",")}
        # Tools that a search found are marked, and were not measured before.
        unmeasured = [replace(tool, size=None, parameters=None) for tool in one.tools]
        assert [t.declared_bytes() for t in unmeasured] == [t.declared_bytes() for t in one.tools]


@claim("mcp:request-bound")
@pytest.mark.parametrize("more", [0, -1])
def test_tools_that_fill_a_request_to_the_byte_are_declared_and_one_byte_more_is_not(
    monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    listed = three_servers()
    size = json_bytes(declare(McpToolTables().make("direct", listed))) - len("[]") + len(",")
    monkeypatch.setattr(bounds, "MAX_DECLARED_BYTES", size + more)
    table = McpToolTables().make("direct", listed)
    assert table.left_out == (frozenset() if more == 0 else {"long"})


def test_what_a_search_found_fills_its_bound_to_the_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    table = McpToolTables().make("deferred", three_servers())
    whole = declare_found(table, table.tools)
    size = json_bytes(whole) - len("[]") + len(",")
    for more, count in ((0, len(table.tools)), (-1, len(table.tools) - 1)):
        monkeypatch.setattr(declarations, "MAX_FOUND_BYTES", size + more)
        found = declare_found(table, table.tools)
        assert sum(len(namespace["tools"]) for namespace in found) == count


def test_listings_keep_what_makes_sense() -> None:
    listing = Listing.of(
        {"serverInfo": "strange", "instructions": 5},
        [{"name": "a", "n": 1}, {"name": "a", "n": 2}, {"name": 5}, {}],
        None,
    )
    assert listing == Listing(tools={"a": {"name": "a", "n": 1}})
    assert read_only_hint(None) is None
    assert read_only_hint({"annotations": {"readOnlyHint": "yes"}}) is None
    assert read_only_hint({"annotations": {"readOnlyHint": False}}) is False
