"""environment/* as clients call it, and MCP servers in an environment."""

from typing import Any

import anyio

from tests.support.harness import WAIT_S, WireClient

FAR = '"far"'
WHO_THERE = '[{ name = "WHO", source = "remote" }]'
NOWHERE = "ws://127.0.0.1:1"


async def add(client: WireClient, url: str, **more: Any) -> None:
    """Add the environment `far`."""
    params = {"environmentId": "far", "execServerUrl": url, **more}
    assert await client.call("environment/add", params) == {}


async def status(client: WireClient, environment_id: str = "far") -> Any:
    """Return what a client is answered about an environment."""
    return await client.call("environment/status", {"environmentId": environment_id})


async def until(client: WireClient, wanted: str) -> Any:
    """Ask until the environment has this status."""
    with anyio.fail_after(WAIT_S):
        while (found := await status(client))["status"] != wanted:
            await anyio.lowlevel.checkpoint()
    return found


async def call(client: WireClient, thread_id: str, tool: str, **arguments: Any) -> Any:
    """Call a tool of the server `raw`; return the text of its result."""
    params = {"threadId": thread_id, "server": "raw", "tool": tool, "arguments": arguments}
    return (await client.call("mcpServer/tool/call", params))["content"][0]["text"]


async def runtime(client: WireClient, thread_id: str, name: str = "raw") -> tuple[str, Any]:
    """Return the status of an MCP server, and why it has no tools."""
    params = {"threadId": thread_id, "serverName": name, "detail": "toolsAndAuthOnly"}
    [entry] = (await client.call("mcpServerStatus/list", params))["data"]
    return entry["runtimeStatus"], entry["toolsError"]
