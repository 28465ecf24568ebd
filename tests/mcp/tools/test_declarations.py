"""mcp: the schemas and declarations of tools that models see, and the listings of servers."""

import json
from typing import Any

from app_server.mcp.catalog.config import (
    ServerConfig,
    StdioTransport,
)
from app_server.mcp.tools.declare import declare
from app_server.mcp.tools.listing import Listing, read_only_hint
from app_server.mcp.tools.naming import RawName, VisibleName
from app_server.mcp.tools.schema import reduce_schema, tool_parameters
from app_server.mcp.tools.table import Tool, ToolTable
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
    deep: Any = {"type": "object"}
    for _ in range(200):
        deep = {"type": "object", "properties": {"a": deep}}
    assert len(json.dumps(tool_parameters(deep))) < 4000


def test_a_long_introduction_is_cut() -> None:
    raw, name = RawName("s", "t"), VisibleName("mcp__s", "t")
    config = ServerConfig("s", StdioTransport("x"))
    table = ToolTable([Tool(raw, name, {}, config)], {"mcp__s": "ü" * 4000})
    description = declare(table)[0]["description"]
    assert len(description.encode()) < 4200
    assert description.endswith("… [truncated]")
    assert declare(ToolTable(table.tools, {}))[0] == {
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
