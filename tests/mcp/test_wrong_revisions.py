"""mcp: servers that speak another revision than was agreed on, or change it."""

import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from app_server.mcp import client as mcp_client
from app_server.mcp.catalog.config import HttpTransport, McpSettings, ServerConfig, StdioTransport
from app_server.mcp.servers import pool as pool_module
from app_server.mcp.servers.pool import ServerPool
from app_server.mcp.servers.requests import call_tool
from app_server.mcp.servers.server import McpServer
from app_server.mcp.servers.server_set import ServerSet
from app_server.mcp.tools.naming import RawName
from app_server.mcp_wire.errors import McpError
from tests.support.harness import WAIT_S, WireClient, claim, serve
from tests.support.mcp_peers.calls import raw_call, start_asking, steps_until_settled
from tests.support.mcp_peers.no_processes import NoProcesses
from tests.support.mcp_peers.web_servers import listening
from tests.support.paths import MCP_PEER

STRANGE = Path(__file__).with_name("strange_peer.py")


@asynccontextmanager
async def strange(home: Path, kind: str, more: str = "") -> AsyncIterator[tuple[Any, WireClient]]:
    """Give a server of ours that has the strange one as `raw`, and an ordinary one as `other`."""
    log = home / "starts"
    config = (
        f"[mcp_servers.raw]\ncommand = {json.dumps(sys.executable)}\n"
        f"args = {json.dumps([str(STRANGE), kind, str(log)])}\n{more}"
        f"[mcp_servers.other]\ncommand = {json.dumps(sys.executable)}\n"
        f"args = {json.dumps([str(MCP_PEER)])}\n"
    )
    async with serve(home, config=config) as served, served.client() as client:
        yield served, client


async def call(client: WireClient, thread_id: str, server: str = "raw", tool: str = "act") -> str:
    params = {"threadId": thread_id, "server": server, "tool": tool, "arguments": {}}
    result = await client.call("mcpServer/tool/call", params)
    return str(result["content"][0]["text"])


@claim("mcp:wrong-revision")
@pytest.mark.parametrize(("kind", "starts"), [("ends", 2), ("silent", 1), ("refuses", 1)])
async def test_an_older_server_starts_whatever_it_makes_of_the_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, starts: int
) -> None:
    monkeypatch.setattr(mcp_client, "STDIO_PROBE_S", 0.01)
    async with strange(tmp_path, kind) as (_, client):
        thread_id = await client.start_thread()
        assert (await steps_until_settled(client, "raw", "other"))["raw"] == [
            ("starting", None),
            ("ready", None),
        ]
        assert await call(client, thread_id) == "done"
        # One that is pinned is not asked, and starts once.
        assert len((tmp_path / "starts").read_text().splitlines()) == starts


def first_methods(home: Path) -> list[str]:
    """Return what each start of the strange server was asked first."""
    return (home / "starts").read_text().splitlines()


@claim("mcp:revision-remembered")
@pytest.mark.parametrize("share", ["thread", "home"])
@pytest.mark.parametrize("kind", ["ends", "silent", "refuses"])
async def test_only_the_first_thread_asks_an_older_server_for_its_revisions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, share: str
) -> None:
    monkeypatch.setattr(mcp_client, "STDIO_PROBE_S", 0.01)
    async with strange(tmp_path, kind, f'share = "{share}"\n') as (_, client):
        for _ in range(3):
            thread_id = await client.start_thread()
            assert (await steps_until_settled(client, "raw", "other"))["raw"][-1][0] == "ready"
            assert await call(client, thread_id) == "done"
            assert await version_of(client, thread_id) == "2025-06-18"
        # Other settings are another server.
        await client.start_thread(config={"mcp_servers.raw.env.WHO": "me"})
        await steps_until_settled(client, "raw", "other")
    fallback = ["initialize"] if kind == "ends" else []
    again = [] if share == "home" else ["initialize"] * 2
    asked = ["server/discover", *fallback]
    assert first_methods(tmp_path) == [*asked, *again, *asked]


async def row_of(client: WireClient, thread_id: str, name: str = "raw") -> Any:
    params = {"threadId": thread_id, "serverName": name}
    [row] = (await client.call("mcpServerStatus/list", params))["data"]
    return row


async def version_of(client: WireClient, thread_id: str) -> Any:
    return (await row_of(client, thread_id))["protocolVersion"]


@claim("mcp:revision-remembered")
@pytest.mark.parametrize("share", ["thread", "home"])
@pytest.mark.parametrize("how", ["restart", "death"])
async def test_a_server_that_is_started_again_is_asked_again(
    tmp_path: Path, share: str, how: str
) -> None:
    async with strange(tmp_path, "refuses", f'share = "{share}"\n') as (_, client):
        thread_id = await client.start_thread()
        await steps_until_settled(client, "raw", "other")
        if how == "restart":
            await client.call("mcpServer/restart", {"name": "raw", "threadId": thread_id})
            if share == "thread":
                await steps_until_settled(client, "raw")
        else:
            os.kill((await row_of(client, thread_id))["pid"], signal.SIGKILL)
            with anyio.fail_after(WAIT_S):
                while (await row_of(client, thread_id))["pid"] is not None:
                    pass
        assert await call(client, thread_id) == "done"
        await client.start_thread()
        await steps_until_settled(client, "raw", "other")
    last = [] if share == "home" else ["initialize"]
    assert first_methods(tmp_path) == ["server/discover", "server/discover", *last]


async def test_a_pinned_older_server_is_not_asked(tmp_path: Path) -> None:
    async with strange(tmp_path, "ends", 'protocol = "2025"\n') as (_, client):
        thread_id = await client.start_thread()
        assert (await steps_until_settled(client, "raw", "other"))["raw"][-1] == ("ready", None)
        assert await call(client, thread_id) == "done"
        assert (tmp_path / "starts").read_text().splitlines() == ["initialize"]


SAID = {
    "asks-in-session": "answered tools/call as in 2026-07-28",
    "requests": "sent a request, 'elicitation/create', which its revision has not",
    "kind": "answered tools/call with an unknown resultType",
    "strays": "answered a request that was not made",
    "cancels": "cancelled a request of the client, tools/call",
    "twice": "listed the tool 'act' 2 times",
    "again": "listed the tool 'act' 2 times",
    "floods": "sent progress of a call faster than it is passed on",
}
"""What a status says that a strange server did."""


@claim("mcp:wrong-revision", "mcp:status-fault")
@pytest.mark.parametrize("share", ["thread", "home"])
@pytest.mark.parametrize("kind", SAID)
async def test_what_a_server_may_not_do_fails_one_call_at_most_and_is_said(
    tmp_path: Path, kind: str, share: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with strange(tmp_path, kind, f'share = "{share}"\n') as (served, client):
        threads = []
        for _ in range(2):
            threads.append(await client.start_thread())
            await steps_until_settled(client, "raw", "other")
        first, second = threads
        turn = await start_asking(served, client, first, raw_call("act"))
        assert await call(client, second, tool="plain") == "done"
        told = await client.until("turn/completed")
        items = [one["params"]["item"] for one in told if one.get("method") == "item/completed"]
        [item] = [one for one in items if one["type"] == "mcpToolCall"]
        fails = kind in ("asks-in-session", "kind")
        assert item["status"] == ("failed" if fails else "completed")
        if fails:
            assert SAID[kind] in item["error"]["message"]
        progress = [one for one in told if one.get("method") == "item/mcpToolCall/progress"]
        # Of 2,000 pieces.
        assert len(progress) < 1000
        assert {one["params"]["turnId"] for one in progress} == ({turn} if progress else set())
        for thread_id in threads:
            assert await call(client, thread_id, tool="plain") == "done"
            assert await call(client, thread_id, "other", "plain") == "plain ran"
        is_shared = share == "home" or kind == "twice"
        said = [(await row_of(client, thread_id))["lastFault"] for thread_id in threads]
        assert said == [SAID[kind], SAID[kind] if is_shared else None]
        other = await row_of(client, first, "other")
        assert (other["lastFault"], other["runtimeStatus"]) == (None, "connected")
    assert f"MCP server raw {SAID[kind]}" in caplog.text


@claim("mcp:log-messages")
async def test_a_server_that_logs_much_fills_the_output_of_its_caller_alone(tmp_path: Path) -> None:
    async with strange(tmp_path, "talks", 'share = "home"\n') as (_, client):
        threads = []
        for _ in range(2):
            threads.append(await client.start_thread())
            await steps_until_settled(client, "raw", "other")
        texts = []
        assert await call(client, threads[0]) == "done"
        assert await call(client, threads[1], tool="plain") == "done"
        for thread_id in threads:
            params = {"name": "raw", "threadId": thread_id}
            [output] = (await client.call("mcpServer/output/read", params))["data"]
            texts.append(output["text"])
        lines = texts[0].splitlines()
        first = 2000 - len(lines)
        assert lines == [f"[info much] {n} {'x' * 100}" for n in range(first, 2000)]
        assert (30_000 < len(texts[0]) <= 64 * 1024, texts[1]) == (True, "")
        assert (await row_of(client, threads[0]))["lastFault"] is None


@claim("mcp:status-fault")
@pytest.mark.parametrize("share", ["thread", "home"])
async def test_a_server_with_another_revision_after_a_restart_is_spoken_to_and_said(
    tmp_path: Path, share: str
) -> None:
    async with strange(tmp_path, "changes", f'share = "{share}"\n') as (_, client):
        thread_id = await client.start_thread()
        await steps_until_settled(client, "raw", "other")
        row = await row_of(client, thread_id)
        assert (row["protocolVersion"], row["lastFault"]) == ("2025-06-18", None)
        await client.call("mcpServer/restart", {"name": "raw", "threadId": thread_id})
        assert await call(client, thread_id) == "done"
        row = await row_of(client, thread_id)
        said = "speaks MCP 2026-07-28, and spoke 2025-06-18 before"
        assert (row["protocolVersion"], row["lastFault"]) == ("2026-07-28", said)


@claim("mcp:list-changed")
async def test_a_stream_of_changes_that_the_server_cancels_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_client, "LISTEN_S", 0.01)
    async with strange(tmp_path, "listens") as (_, client):
        thread_id = await client.start_thread()
        await steps_until_settled(client, "raw", "other")
        with anyio.fail_after(WAIT_S):
            while "late" not in (await row_of(client, thread_id))["tools"]:
                pass
        assert (await row_of(client, thread_id))["lastFault"] is None
    assert first_methods(tmp_path)[1:] == ["subscriptions/listen"] * 3


async def test_streams_of_changes_that_end_are_asked_for_ever_more_rarely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    sleep, done = anyio.sleep, anyio.Event()

    async def sleeping(seconds: float) -> None:
        if seconds not in (7.0, 14.0, 20.0):
            await sleep(seconds)
            return
        waits.append(seconds)
        if len(waits) == 2:
            done.set()

    monkeypatch.setattr(mcp_client, "LISTEN_S", 7.0)
    monkeypatch.setattr(mcp_client, "MAX_LISTEN_WAIT_S", 20.0)
    monkeypatch.setattr("app_server.mcp.client.anyio.sleep", sleeping)
    async with strange(tmp_path, "vain") as (_, client):
        thread_id = await client.start_thread()
        await steps_until_settled(client, "raw", "other")
        with anyio.fail_after(WAIT_S):
            await done.wait()
        # It is answered after all that was sent before it.
        assert await call(client, thread_id) == "done"
    # It was taken up neither time: then there is no third.
    assert (waits, first_methods(tmp_path)[1:]) == ([7.0, 14.0], ["subscriptions/listen"] * 2)


@claim("mcp:wrong-revision")
@pytest.mark.parametrize("kind", ["asks-nothing", "asks-null"])
async def test_a_call_that_is_asked_for_nothing_fails_and_is_made_once(
    tmp_path: Path, kind: str
) -> None:
    async with strange(tmp_path, kind) as (_, client):
        thread_id = await client.start_thread()
        await steps_until_settled(client, "raw", "other")
        params = {"threadId": thread_id, "server": "raw", "tool": "act", "arguments": {}}
        error = await client.refusal("mcpServer/tool/call", params)
        said = "input_required must have inputRequests, or requestState, a string"
        assert (error.code, said in error.message) == (-32603, True)
    assert (tmp_path / "starts").read_text().splitlines() == ["server/discover", "tools/call"]


class Changing:
    """A server behind a URL that has one revision after the other."""

    def __init__(self, *revisions: str) -> None:
        self.revisions = list(revisions)
        self.methods: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while (message := await receive()).get("more_body"):
            body += message["body"]
        body += message.get("body", b"")
        status, answer = self._answer(json.loads(body)) if body else (405, None)
        content = b"" if answer is None else json.dumps(answer).encode()
        kind = [(b"content-type", b"application/json")] if content else []
        await send({"type": "http.response.start", "status": status, "headers": kind})
        await send({"type": "http.response.body", "body": content})

    def _answer(self, message: Any) -> tuple[int, Any]:
        method, params = message["method"], message.get("params") or {}
        self.methods.append(method)
        is_new = "io.modelcontextprotocol/protocolVersion" in (params.get("_meta") or {})
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": message.get("id")}
        if self.revisions[0] == "2031-01-01" or is_new != (self.revisions[0] == "2026-07-28"):
            supported = {"supported": self.revisions[:1], "requested": "?"}
            error = {"code": -32022, "message": "no", "data": supported}
            is_old = self.revisions[0] == "2025-06-18"
            return 400, None if is_old else {**answer, "error": error}
        if "id" not in message:
            return 202, None
        results: dict[str, Any] = {
            "server/discover": {"supportedVersions": ["2026-07-28"], "capabilities": {}},
            "initialize": {"protocolVersion": "2025-06-18", "capabilities": {}},
            "tools/list": {"tools": [{"name": "act", "inputSchema": {"type": "object"}}] * 2},
            "tools/call": {"content": [{"type": "text", "text": self.revisions[0]}]},
        }
        return 200, {**answer, "result": results[method]}


@asynccontextmanager
async def connecting(port: int, pool: ServerPool) -> AsyncIterator[tuple[ServerSet, McpServer]]:
    """Give the servers of a thread, once `raw` on this port has started or failed."""
    config = ServerConfig("raw", HttpTransport(f"http://127.0.0.1:{port}/mcp"))
    servers = ServerSet(McpSettings({"raw": config}), ".", pool, lambda *_: None, None)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(servers.run)
        with anyio.fail_after(WAIT_S):
            await servers.server("raw").settled.wait()
        yield servers, servers.server("raw")
        servers.stop()


@asynccontextmanager
async def changing(peer: Changing) -> AsyncIterator[tuple[ServerSet, McpServer]]:
    pool = ServerPool(NoProcesses())
    async with listening(peer) as port, connecting(port, pool) as found:
        yield found


async def told(servers: ServerSet) -> Any:
    result = await call_tool(servers, RawName("raw", "act"), {}, {})
    return result["content"][0]["text"]


@claim("mcp:wrong-revision")
@pytest.mark.parametrize(
    ("before", "after"), [("2026-07-28", "2025-06-18"), ("2025-06-18", "2026-07-28")]
)
async def test_a_server_that_changes_its_revision_is_asked_again(before: str, after: str) -> None:
    peer = Changing(before, after)
    async with changing(peer) as (servers, server):
        assert (server.record.protocol_version, await told(servers)) == (before, before)
        assert server.record.last_fault == "listed the tool 'act' 2 times"
        peer.revisions.pop(0)
        assert (await told(servers), server.record.protocol_version) == (after, after)
        peer.methods.clear()
        # Now it is known again.
        assert await told(servers) == after
        assert peer.methods == ["tools/call"]


@claim("mcp:revision-remembered")
async def test_a_revision_is_forgotten_when_the_server_refuses_it_or_does_not_start() -> None:
    new, old = "2026-07-28", "2025-06-18"
    peer, pool = Changing(old), ServerPool(NoProcesses())
    first = []
    async with listening(peer) as port:
        for revision in (old, old, new, new, "2031-01-01", old):
            peer.revisions = [revision]
            peer.methods.clear()
            async with connecting(port, pool) as (_, server):
                assert server.status == ("failed" if revision > new else "connected")
            first.append([method for method in peer.methods if method != "tools/list"][:2])
    discover, initialize = "server/discover", "initialize"
    assert first == [
        [discover, initialize],
        [initialize, "notifications/initialized"],
        [initialize, discover],
        [discover],
        [discover],
        [discover, initialize],
    ]


async def test_what_is_remembered_of_servers_is_bounded() -> None:
    pool = ServerPool(NoProcesses())
    count = pool_module.MAX_REMEMBERED + 1
    configs = [ServerConfig(f"s{number}", StdioTransport("x")) for number in range(count)]
    for config in configs:
        pool.learned(config, ".").protocol_version = "2025-06-18"
    found = [pool.learned(config, ".").protocol_version for config in reversed(configs)]
    assert found == ["2025-06-18"] * (count - 1) + [None]


async def test_a_server_that_has_no_revision_any_more_fails_its_calls() -> None:
    peer = Changing("2026-07-28", "2031-01-01")
    async with changing(peer) as (servers, server):
        peer.revisions.pop(0)
        with pytest.raises(McpError):
            await told(servers)
        assert server.status == "connected"


def test_a_process_and_a_url_have_the_same_default() -> None:
    assert ServerConfig("a", StdioTransport("x")).protocol == "auto"
