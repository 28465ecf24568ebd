"""A small MCP server on stdio: `python -m app_server.clients.demo.tools`.

Its one tool gives back what it was called with, metadata included, so that one can see what
arrives.
"""

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

LOOK = types.Tool(
    name="look",
    description="Give back the arguments and the metadata of this call.",
    input_schema={
        "type": "object",
        "properties": {"at": {"type": "string", "description": "Anything."}},
    },
    annotations=types.ToolAnnotations(read_only_hint=True),
)

NOTE = types.Resource(
    uri="demo://note", name="note", description="A text to read.", mime_type="text/plain"
)


async def list_tools(context: object, params: object) -> types.ListToolsResult:
    """List the one tool."""
    return types.ListToolsResult(tools=[LOOK])


async def call_tool(context: object, params: types.CallToolRequestParams) -> types.CallToolResult:
    """Echo the arguments."""
    arguments = params.arguments or {}
    seen = {"arguments": arguments, "_meta": dict(params.meta or {})}
    text = f"I looked at {arguments.get('at', 'nothing')}."
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], structured_content=seen
    )


async def list_resources(context: object, params: object) -> types.ListResourcesResult:
    """List the one resource."""
    return types.ListResourcesResult(resources=[NOTE])


async def read_resource(
    context: object, params: types.ReadResourceRequestParams
) -> types.ReadResourceResult:
    """Read the one resource."""
    text = types.TextResourceContents(uri=params.uri, text="Hello from the demo.")
    return types.ReadResourceResult(contents=[text])


def make_server() -> Server[dict[str, object]]:
    """Make the server."""
    return Server(
        "demo",
        version="1",
        instructions="Look at things.",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_read_resource=read_resource,
    )


async def main() -> None:
    """Serve until stdin ends."""
    server = make_server()
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
