"""mcp: calls that are under way while settings are read again, and servers that died."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.files.fifos import read_fifo, write_fifo
from tests.support.harness import claim, stdio_server
from tests.support.mcp_peers.calls import raw_call
from tests.support.mcp_peers.reloads import Thread, thread_with, until_gone
from tests.support.model import calls


@asynccontextmanager
async def running_call(thread: Thread, folder: Path, server: str) -> AsyncIterator[tuple[int, Any]]:
    """Hold a call at its server; gives the id of the request and what lets the call end."""
    reached, opened = folder / "reached", folder / "opened"
    os.mkfifo(reached)
    os.mkfifo(opened)
    arguments = {"reached": str(reached), "opened": str(opened)}
    request = await thread.client.request(
        "mcpServer/tool/call",
        {"threadId": thread.id, "server": server, "tool": "wait", "arguments": arguments},
    )
    assert await read_fifo(reached) == "here"

    async def let_end() -> None:
        await write_fifo(opened, "go")

    yield request, let_end


@claim("mcp:reload-lease")
async def test_a_call_ends_on_the_connection_it_began_on(tmp_path: Path) -> None:
    config = stdio_server("raw", env='{ WHO = "a" }') + stdio_server("gone")
    async with thread_with(tmp_path, config, "raw", "gone") as thread:
        old, _ = await thread.direct("whoami")
        async with running_call(thread, tmp_path, "raw") as (request, let_end):
            thread.write(stdio_server("raw", env='{ WHO = "b" }'))
            await thread.reload()
            assert await thread.statuses("raw") == [("raw", "starting"), ("raw", "ready")]
            new, who = await thread.direct("whoami")
            assert (new != old, who) == (True, "b")
            os.kill(old, 0)
            await let_end()
            answer = await thread.client.answer(request)
            assert answer["result"]["content"] == [{"type": "text", "text": str(old)}]
        await until_gone(old)


async def test_a_call_that_does_not_end_is_not_waited_for_without_end(tmp_path: Path) -> None:
    config = stdio_server("raw", tool_timeout_sec="60")
    async with thread_with(tmp_path, config, "raw") as thread:
        thread.served.services.mcp_pool.min_lease_s = 0
        old, _ = await thread.direct("whoami")
        slow = {"threadId": thread.id, "server": "raw", "tool": "slow"}
        request = await thread.client.request("mcpServer/tool/call", slow)
        thread.write(stdio_server("raw", tool_timeout_sec="0.2"))
        await thread.reload()
        assert await thread.statuses("raw") == [("raw", "ready")]
        thread.write("")
        await thread.reload()
        answer = await thread.client.answer(request)
        assert answer["error"]["message"] == "tool call failed for `raw/slow`: Transport closed"
        await until_gone(old)


async def test_an_unloaded_thread_waits_for_no_call(tmp_path: Path) -> None:
    async with thread_with(tmp_path, stdio_server("raw"), "raw") as thread:
        old, _ = await thread.direct("whoami")
        slow = {"threadId": thread.id, "server": "raw", "tool": "slow"}
        request = await thread.client.request("mcpServer/tool/call", slow)
        thread.write("")
        await thread.reload()
        assert await thread.runtime() == {}
        await thread.client.turn(thread.id, "hi")
        await thread.client.call("thread/archive", {"threadId": thread.id})
        answer = await thread.client.answer(request)
        assert answer["error"]["data"] == {"code": "mcpTransportClosed"}
        await until_gone(old)


# A server that died.


@claim("mcp:revival", "mcp:death")
async def test_a_process_that_died_is_started_again_before_it_is_needed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with thread_with(tmp_path, stdio_server("raw", "log", str(log)), "raw") as thread:
        first, _ = await thread.direct("whoami")
        client, model = thread.client, thread.served.model
        model.scripts += [calls(raw_call("die"), raw_call("meta")), calls(raw_call("whoami"))]
        params = {"threadId": thread.id, "input": [{"type": "text", "text": "go"}]}
        await client.call("turn/start", params)
        messages = await client.until("turn/completed")
        shown = [
            message["params"].get("status") or message["params"]["item"]["status"]
            for message in messages
            if message["method"] == "mcpServer/startupStatus/updated"
            or (
                message["method"] == "item/completed"
                and message["params"]["item"]["type"] == "mcpToolCall"
            )
        ]
        # Not between the calls of one response, but before the next request; no call is repeated.
        assert shown == ["failed", "failed", "starting", "ready"]
        assert log.read_text().count('"die"') == 1
        for request in model.requests:
            assert request["tools"][-1]["name"] == "mcp__raw"
        second, _ = await thread.direct("whoami")
        assert second != first
        # Clients' own calls start it again too.
        die = {"threadId": thread.id, "server": "raw", "tool": "die"}
        await client.refusal("mcpServer/tool/call", die)
        assert await thread.runtime() == {"raw": "failed"}
        third, _ = await thread.direct("whoami")
        assert third not in (first, second)
        assert await thread.statuses("raw") == [("raw", "starting"), ("raw", "ready")]


@claim("mcp:revival-once")
async def test_a_process_that_does_not_come_back_is_left_alone(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    config = stdio_server("raw", "unless", str(flag))
    async with thread_with(tmp_path, config, "raw") as thread:
        flag.touch()
        die = {"threadId": thread.id, "server": "raw", "tool": "die"}
        await thread.client.refusal("mcpServer/tool/call", die)
        whoami = {**die, "tool": "whoami"}
        error = await thread.client.refusal("mcpServer/tool/call", whoami)
        assert error.data == {"code": "mcpServerUnavailable"}
        assert await thread.statuses("raw") == [("raw", "starting"), ("raw", "failed")]
        assert await thread.namespaces() == ["mcp__raw"]
        again = await thread.client.refusal("mcpServer/tool/call", whoami)
        assert again.message == error.message
        flag.unlink()
        await thread.reload()
        # No notification of another start came in between.
        assert await thread.statuses("raw") == [("raw", "starting"), ("raw", "ready")]
        await thread.direct("whoami")
