"""mcp: arguments of tools that go into headers, and the tools that must not be used."""

from typing import Any

import pytest

from app_server.mcp_wire.http.mirrored import (
    BadAnnotation,
    mirrored_headers,
    mirrored_of,
    usable_tools,
)
from app_server.mcp_wire.revisions import header_value


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def marked(name: Any = "Name", kind: Any = "string") -> dict[str, Any]:
    return {"type": kind, "x-mcp-header": name}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("us-west1", "us-west1"),
        ("two words", "two words"),
        ("", ""),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ("\x7f", "=?base64?fw==?="),
        ("\ud83d", "=?base64?Pw==?="),
    ],
)
def test_a_header_has_plain_text_or_base64(text: str, value: str) -> None:
    assert header_value(text) == value


@pytest.mark.parametrize(
    ("given", "headers"),
    [
        ({"a": "x"}, {"mcp-param-a": "x"}),
        ({"a": None}, {}),
        ({}, {}),
        (None, {}),
        ({"b": True, "c": 7}, {"mcp-param-b": "true", "mcp-param-c": "7"}),
        ({"b": False, "c": -1}, {"mcp-param-b": "false", "mcp-param-c": "-1"}),
        ({"d": {"e": "deep"}}, {"mcp-param-e": "deep"}),
        ({"d": "flat", "a": ["x"]}, {}),
    ],
)
def test_each_argument_with_an_annotation_becomes_a_header(given: Any, headers: Any) -> None:
    found = mirrored_of(
        schema(
            a=marked("A"),
            b=marked("B", "boolean"),
            c=marked("C", "integer"),
            d=schema(e=marked("E")),
            other={"type": "string", "default": {"x-mcp-header": "data"}},
        )
    )
    assert mirrored_headers(found, given) == headers


@pytest.mark.parametrize(
    "bad",
    [
        schema(a=marked("")),
        schema(a=marked("two words")),
        schema(a=marked("line\r\n")),
        schema(a=marked(5)),
        schema(a=marked(kind="number")),
        schema(a=marked(kind=["string", "null"])),
        schema(a=marked(kind="object")),
        schema(a=marked("Same"), b=marked("sAME")),
        {**schema(), "x-mcp-header": "Root", "type": "string"},
        schema(a={"type": "array", "items": marked()}),
        schema(a={"anyOf": [marked()]}),
        {"$defs": {"a": marked()}},
        {"if": schema(a=marked())},
        schema(a={"type": "array", "items": schema(b=marked())}),
    ],
)
def test_a_tool_whose_annotation_breaks_a_rule_is_left_out(bad: Any) -> None:
    with pytest.raises(BadAnnotation):
        mirrored_of(bad)
    good = {"name": "good", "inputSchema": schema(a=marked("A"))}
    tools, mirrored, faults = usable_tools([{"name": "bad", "inputSchema": bad}, good, "none"])
    assert (tools, mirrored) == ([good, "none"], {"good": {("a",): "mcp-param-a"}})
    assert [fault[:24] for fault in faults] == ["listed the tool 'bad', w"]


@pytest.mark.parametrize("absent", [None, [], "x", {}, schema(), schema(a=True)])
def test_a_schema_without_annotations_has_no_headers(absent: Any) -> None:
    assert mirrored_of(absent) == {}
