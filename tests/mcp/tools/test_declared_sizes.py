"""mcp: how large a tool is for the bounds of a model request."""

from pydantic_core import to_json

from app_server.mcp.bounds import declared_bytes
from app_server.mcp.tools.schema import tool_parameters

SCHEMA = {"type": "object", "properties": {"text": {"type": "string", "description": "x" * 1000}}}


def test_a_tool_is_as_large_whether_its_schema_was_read_before_or_not() -> None:
    tool = {"name": "t", "description": "d", "inputSchema": SCHEMA}
    read = tool_parameters(SCHEMA)
    assert declared_bytes(tool) == declared_bytes(tool, read)
    assert declared_bytes(tool) > len(to_json(read))


def test_a_schema_that_was_read_before_is_measured_instead_of_that_of_the_tool() -> None:
    tool = {"name": "t", "description": "d", "inputSchema": SCHEMA}
    bare = {"name": "t", "description": "d"}
    assert declared_bytes(tool, tool_parameters(None)) == declared_bytes(bare)
    assert declared_bytes(bare) + 1000 < declared_bytes(tool)
