"""A thread whose MCP servers are those of its file, which changes."""

import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import anyio
import anyio.to_thread

from tests.support.harness import (
    WAIT_S,
    Served,
    WireClient,
    serve,
    write_config,
)
from tests.support.mcp_peers.calls import steps_until_settled


@dataclass
class Thread:
    """A thread, its client, and the file behind its servers."""

    served: Served
    client: WireClient
    id: str

    def write(self, config: str) -> None:
        write_config(self.served.home, self.served.model.url, config)

    async def reload(self) -> None:
        assert await self.client.call("config/mcpServer/reload") == {}

    async def statuses(self, *names: str) -> list[tuple[str, str]]:
        """Return the next notifications of servers, until those named have settled."""
        found: list[tuple[str, str]] = []
        waiting = set(names)
        while waiting:
            message = await self.client.wait_for("mcpServer/startupStatus/updated")
            name, status = message["params"]["name"], message["params"]["status"]
            found.append((name, status))
            if status != "starting":
                waiting.discard(name)
        return found

    async def direct(self, tool: str, server: str = "raw", **arguments: Any) -> Any:
        result = await self.client.call(
            "mcpServer/tool/call",
            {"threadId": self.id, "server": server, "tool": tool, "arguments": arguments},
        )
        return json.loads(result["content"][0]["text"])

    async def runtime(self) -> dict[str, str]:
        status = await self.client.call("mcpServerStatus/list", {"threadId": self.id})
        return {entry["name"]: entry["runtimeStatus"] for entry in status["data"]}

    async def namespaces(self) -> list[str]:
        """Run a turn and return the namespaces that its last request declared."""
        assert (await self.client.turn(self.id, "hi"))["status"] == "completed"
        tools = self.served.model.requests[-1].get("tools", [])
        return [tool["name"] for tool in tools if tool["type"] == "namespace"]


@asynccontextmanager
async def thread_with(
    home: Path,
    config: str,
    *names: str,
    overrides: Any = None,
    params: Mapping[str, Any] = MappingProxyType({}),
) -> AsyncIterator[Thread]:
    """Give a thread whose named servers have settled; `params` are those of its start."""
    async with serve(home, config=config) as served, served.client() as client:
        thread_id = await client.start_thread(config=overrides, **params)
        thread = Thread(served, client, thread_id)
        await steps_until_settled(client, *names)
        yield thread


async def until_gone(*pids: int) -> None:
    """Wait until processes have ended."""
    with anyio.fail_after(WAIT_S):
        for pid in pids:
            with suppress(ProcessLookupError):
                while True:
                    os.kill(pid, 0)
                    await anyio.lowlevel.checkpoint()
