"""mcp: servers that break the client, listen to nothing, stop reading; the end of processes."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support.harness import (
    WAIT_S,
    WireClient,
    claim,
    serve,
    stdio_server,
)
from tests.support.mcp_peers.calls import steps_until_settled, with_peer
from tests.support.paths import MCP_PEER


async def test_a_peer_that_breaks_the_client_reaches_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: Any) -> None:
        raise LookupError("the client broke")

    monkeypatch.setattr("app_server.mcp.servers.server.hold_connection", broken)
    async with serve(tmp_path, config=stdio_server("raw")) as served, served.client() as client:
        thread_id = await client.start_thread()
        told = await steps_until_settled(client, "raw")
        assert told["raw"][-1][1].endswith("MCP startup failed: the connection broke")
        assert (await client.turn(thread_id, "hi"))["status"] == "completed"
    assert "the client broke" in caplog.text


async def test_a_server_that_ends_leaves_why_and_counts_its_starts(tmp_path: Path) -> None:
    async with with_peer(tmp_path, "flood") as (served, client, thread_id):
        servers = served.services.sessions.get(thread_id).servers.live().servers
        first = servers["raw"]
        record = first.record
        assert (record.restarts, record.last_error, record.shared_by) == (0, None, 1)
        params = {"threadId": thread_id, "server": "raw", "tool": "whoami"}
        assert first.pid == await whoami(client, params)
        began_ms = record.started_at_ms
        assert began_ms is not None
        os.kill(first.pid, signal.SIGKILL)
        await client.refusal("mcpServer/tool/call", {**params, "tool": "slow"})
        assert await whoami(client, params) == servers["raw"].pid
        assert (servers["raw"].record is record, record.restarts, first.pid) == (True, 1, None)
        assert record.started_at_ms is not None
        assert record.started_at_ms >= began_ms
    assert record.last_error == f"{sys.executable}: the server ended: exit status -9: {'x' * 300}"


async def whoami(client: WireClient, params: Any) -> int:
    """Return the id of a server's process."""
    result = await client.call("mcpServer/tool/call", params)
    pid: int = json.loads(result["content"][0]["text"])[0]
    return pid


async def test_a_server_that_listens_to_nothing_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "stubborn.py"
    script.write_text(
        "import signal, runpy, sys\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"sys.argv = ['x']\nrunpy.run_path({str(MCP_PEER)!r}, run_name='__main__')\n"
        "signal.pause()\n"
    )
    config = f"[mcp_servers.raw]\ncommand = {json.dumps(sys.executable)}\nargs = ['{script}']\n"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("app_server.host.processes.TERMINATE_S", 0.05)
        async with serve(tmp_path, config=config) as served, served.client() as client:
            await client.start_thread()
            await steps_until_settled(client, "raw")
    left = [line for line in _processes() if str(script) in line]
    assert left == []


@claim("mcp:deaf")
async def test_a_server_that_stops_reading_holds_up_its_own_calls_and_not_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app_server.mcp.stdio.SEND_S", 0.1)
    monkeypatch.setattr("app_server.mcp.stdio.MAX_UNSENT_BYTES", 2_000_000)
    config = stdio_server("raw", "deaf") + stdio_server("other")
    async with serve(tmp_path, config=config) as served, served.client() as client:
        thread_id = await client.start_thread()
        params = {"threadId": thread_id, "server": "raw", "tool": "plain"}
        big = {**params, "arguments": {"text": "x" * 900_000}}
        for said in (
            *["the server does not read its input"] * 3,
            "more than 2000000 bytes wait for the server to read them",
        ):
            error = await client.refusal("mcpServer/tool/call", big)
            assert error.message == f"tool call failed for `raw/plain`: {said}"
        result = await client.call("mcpServer/tool/call", {**params, "server": "other"})
        assert result["content"] == [{"type": "text", "text": "plain ran"}]


def _processes() -> list[str]:
    lines = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(entry.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return lines


@claim("mcp:children-end")
async def test_no_child_outlives_its_thread(tmp_path: Path) -> None:
    marker = f"marker-{os.getpid()}"
    config = stdio_server("raw", marker)
    async with serve(tmp_path, config=config) as served, served.client() as client:
        first, second = await client.start_thread(), await client.start_thread()
        for thread_id in (first, second):
            await client.call(
                "mcpServer/tool/call", {"threadId": thread_id, "server": "raw", "tool": "meta"}
            )
        assert len([line for line in _processes() if marker in line]) == 2
        await client.call("thread/archive", {"threadId": first})
        with anyio.fail_after(WAIT_S):
            while len([line for line in _processes() if marker in line]) > 1:
                await anyio.sleep(0.01)
    assert [line for line in _processes() if marker in line] == []
