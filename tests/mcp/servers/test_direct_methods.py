"""mcp: calls and resources that clients ask for themselves."""

import json
from pathlib import Path
from typing import Any

from tests.support.harness import (
    claim,
    serve,
    stdio_server,
)


@claim("mcp:direct-call", "mcp:direct-errors", "mcp:resource-read")
async def test_clients_call_tools_and_read_resources_directly(tmp_path: Path) -> None:
    config = (
        stdio_server("raw", disabled_tools='["plain"]')
        + stdio_server("off", enabled="false")
        + '[mcp_servers.bad]\ncommand = "/no/such"\n'
    )
    async with serve(tmp_path, config=config) as served, served.client() as client:
        thread_id = await client.start_thread()

        async def call(tool: str, server: str = "raw", **more: Any) -> Any:
            params = {"threadId": thread_id, "server": server, "tool": tool, **more}
            return await client.call("mcpServer/tool/call", params)

        async def refused(tool: str, server: str = "raw", **more: Any) -> tuple[int, str, Any]:
            params = {"threadId": thread_id, "server": server, "tool": tool, **more}
            error = await client.refusal("mcpServer/tool/call", params)
            return error.code, error.message, error.data

        assert await call("structured") == {
            "content": [{"type": "text", "text": "t"}],
            "structuredContent": {"b": 1, "a": [2]},
            "_meta": {"m": 1},
        }
        assert await call("fail") == {
            "content": [{"type": "text", "text": "it went wrong"}],
            "isError": True,
        }
        result = await call("meta", _meta={"threadId": "evil", "progressToken": "evil", "k": 1})
        meta = json.loads(result["content"][0]["text"])
        assert (meta["threadId"], meta["k"]) == (thread_id, 1)
        assert meta["progressToken"] != "evil"
        assert (await call("progress"))["content"][0]["text"] == "done"
        assert (await call("unlisted"))["content"][0]["text"] == "unlisted ran"
        assert await refused("refuse") == (-32050, "refused", {"why": 1})
        assert await refused("x", "zzz") == (
            -32603,
            "unknown MCP server 'zzz'",
            {"code": "unknownMcpServer"},
        )
        assert (await refused("x", "off"))[1] == "unknown MCP server 'off'"
        assert await refused("x", "bad") == (
            -32603,
            "failed to get client: MCP startup failed: /no/such: No such file or directory "
            "(os error 2)",
            {"code": "mcpServerUnavailable"},
        )
        assert await refused("plain") == (
            -32603,
            "tool 'plain' is disabled for MCP server 'raw'",
            {"code": "mcpToolDisabled"},
        )
        assert await refused("meta", arguments=[1]) == (
            -32603,
            "tool call failed for `raw/meta`: MCP tool arguments must be a JSON object",
            {"code": "mcpBadArguments"},
        )
        assert (await refused("meta", _meta=[1]))[1] == (
            "tool call failed for `raw/meta`: MCP tool request _meta must be a JSON object, got [1]"
        )
        assert (await refused("die"))[1:] == (
            "tool call failed for `raw/die`: Transport closed",
            {"code": "mcpTransportClosed"},
        )

        read = {"server": "raw", "uri": "mem://a"}
        trial = await client.call(
            "mcpServer/resource/read",
            {**read, "originCallId": "o", "_meta": {"k": 1, "codex/x": 2}},
        )
        assert trial["originCallId"] == "o"
        (content,) = trial["contents"]
        assert json.loads(content["text"]) == {"uri": "mem://a", "_meta": {"k": 1}}
        error = await client.refusal("mcpServer/resource/read", {"server": "zz", "uri": "x"})
        assert error.message == "unknown MCP server 'zz'"
        error = await client.refusal("mcpServer/resource/read", {"server": "bad", "uri": "x"})
        assert error.data["code"] == "mcpServerUnavailable"
        deadly = {"server": "raw", "uri": "mem://die", "threadId": thread_id}
        error = await client.refusal("mcpServer/resource/read", deadly)
        assert error.message == "resource read failed for `raw`: Transport closed"
        own = await client.call("mcpServer/resource/read", {**read, "threadId": thread_id})
        assert json.loads(own["contents"][0]["text"])["_meta"] == {"threadId": thread_id}
