"""Commands that print the headers of requests to an MCP server."""

import json
import shlex
from pathlib import Path
from typing import Any

from tests.support.harness import WireClient
from tests.support.mcp_peers.web_peer import WebPeer

FAILED = "MCP client for `raw` failed to start: MCP startup failed: "


def printing(home: Path, **headers: str) -> str:
    """Write a command that prints these headers, and `x-run` with the number of its run."""
    runs = shlex.quote(str(home / "runs"))
    text = json.dumps({**headers, "X-Run": "COUNT"}).replace("COUNT", f"$(wc -c <{runs})")
    escaped = text.replace('"', '\\"')
    return f'printf . >>{runs}; echo "{escaped}"'


def runs(home: Path) -> int:
    """Count the runs of what `printing` wrote."""
    return (home / "runs").stat().st_size


def server(peer: WebPeer, command: str, more: str = "") -> str:
    quoted = json.dumps(command)
    return f'[mcp_servers.raw]\nurl = "{peer.url}"\nhttp_headers_helper = {quoted}\n{more}'


async def look(client: WireClient, thread_id: str) -> Any:
    params = {"threadId": thread_id, "server": "raw", "tool": "look", "arguments": {}}
    return await client.answer(await client.request("mcpServer/tool/call", params))


def sent(peer: WebPeer, method: str) -> list[dict[str, str]]:
    """Return the headers of the requests for one MCP method."""
    pairs = zip(peer.seen, peer.headers, strict=True)
    return [headers for (seen, _), headers in pairs if seen == method]
