"""mcp: servers behind a URL that refuse, forget, stall and break off."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from app_server.mcp_wire.http import transport
from tests.support.event_loop.clock import LoopClock
from tests.support.harness import WAIT_S, WireClient, claim, serve
from tests.support.mcp_peers.calls import steps_until_settled
from tests.support.mcp_peers.web_peer import EVENTS, JSON, Answer, WebPeer

LIMIT_S = 30
"""Half of what the tests wait for an answer."""

STEPS = 100
"""Of the event loop: more than the beginning of an answer takes to the client of its server."""

RPC_ERROR = json.dumps(
    {"jsonrpc": "2.0", "id": None, "error": {"code": -32001, "message": "refused in JSON-RPC"}}
).encode()


@pytest.fixture(autouse=True, params=["loopback", "remote"])
def sender(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send all requests over the one or the other; behaviour is the same."""
    if request.param == "remote":
        monkeypatch.setattr(transport, "is_loopback", lambda url: False)


@asynccontextmanager
async def conversation(home: Path, peer: WebPeer, more: str = "") -> AsyncIterator[WireClient]:
    """Serve the peer, and a server of ours that has it as `raw`; gives a client."""
    async with peer.serve():
        config = f'[mcp_servers.raw]\nurl = "{peer.url}"\n{more}'
        async with serve(home, config=config) as served, served.client() as client:
            served.services.mcp_pool.retry_waits_s = (0, 0)
            yield client


async def look(client: WireClient, thread_id: str, **arguments: Any) -> Any:
    result = await client.call(
        "mcpServer/tool/call",
        {"threadId": thread_id, "server": "raw", "tool": "look", "arguments": arguments},
    )
    return result["content"][0]["text"]


async def look_refused(client: WireClient, thread_id: str) -> tuple[int, str]:
    error = await client.refusal(
        "mcpServer/tool/call", {"threadId": thread_id, "server": "raw", "tool": "look"}
    )
    return error.code, error.message


SIGN_IN = "The raw MCP server is not logged in. Run `codex mcp login raw`."
FAILED = "MCP client for `raw` failed to start: MCP startup failed: "


@claim("mcp:http-refusals")
@pytest.mark.parametrize(
    ("answer", "tries", "error"),
    [
        (Answer(401, b"who are you"), 1, SIGN_IN),
        (Answer(401, b'{"error": "invalid_token"}', JSON), 1, SIGN_IN),
        (Answer(401, RPC_ERROR, JSON), 1, SIGN_IN),
        (Answer(503, b'{"message": "busy"}', JSON), 3, FAILED + "HTTP status 503 from {url}"),
        (Answer(400, b"{}" * 50, JSON), 1, FAILED + "HTTP status 400 from {url}"),
        (Answer(400, b"{", JSON, cut=True), 1, FAILED + "HTTP status 400 from {url}"),
        (Answer(400, RPC_ERROR, JSON), 1, FAILED + "refused in JSON-RPC"),
        (Answer(404, b"{}", JSON), 1, FAILED + "Not Found"),
    ],
    ids=["401", "401-json", "401-rpc", "503", "400", "400-cut", "400-rpc", "404"],
)
async def test_a_refusal_is_understood_whatever_its_body(
    tmp_path: Path, answer: Answer, tries: int, error: str
) -> None:
    peer = WebPeer(answers={"initialize": [answer] * 3})
    async with conversation(tmp_path, peer) as client:
        await client.start_thread()
        told = await steps_until_settled(client, "raw")
        assert told["raw"][-1] == ("failed", error.replace("{url}", peer.url))
    assert peer.methods().count("initialize") == tries


@claim("mcp:session-renewed")
@pytest.mark.parametrize("lost", [Answer(404, b"gone"), Answer(404, RPC_ERROR, JSON)])
async def test_a_session_that_has_ended_is_begun_anew(tmp_path: Path, lost: Answer) -> None:
    peer = WebPeer(lost=lost)
    async with conversation(tmp_path, peer) as client:
        thread_id = await client.start_thread()
        assert await look(client, thread_id) == "call 1"
        await peer.listening.wait()
        peer.known.clear()
        peer.listening.clear()
        before = len(peer.seen)
        requests = [
            await client.request(
                "mcpServer/tool/call", {"threadId": thread_id, "server": "raw", "tool": "look"}
            )
            for _ in range(3)
        ]
        answers = [await client.answer(request) for request in requests]
        texts = {answer["result"]["content"][0]["text"] for answer in answers}
        assert texts == {"call 2", "call 3", "call 4"}
        with anyio.fail_after(WAIT_S):
            await peer.listening.wait()
    after = peer.seen[before:]
    assert [seen for seen in after if seen[0] in ("initialize", "GET", "DELETE")] == [
        ("initialize", None),
        ("GET", "session-2"),
        ("DELETE", "session-2"),
    ]
    assert ("notifications/initialized", "session-2") in after


@claim("mcp:session-renewed")
async def test_a_session_that_cannot_be_begun_anew_fails_its_call_alone(tmp_path: Path) -> None:
    peer = WebPeer()
    async with conversation(tmp_path, peer) as client:
        thread_id = await client.start_thread()
        assert await look(client, thread_id) == "call 1"
        peer.known.clear()
        peer.answers["initialize"] = [Answer(500, b"no")]
        refused = await look_refused(client, thread_id)
        assert refused == (-32000, f"HTTP status 500 from {peer.url}")
        # The server forgets the new session at once: there is one repeat, not an endless row.
        peer.answers["tools/call"] = [Answer(404, b"")] * 2
        calls_before = peer.methods().count("tools/call")
        refused = await look_refused(client, thread_id)
        assert refused == (-32000, "the server has ended the session")
        assert peer.methods().count("tools/call") == calls_before + 2
        assert await look(client, thread_id) == "call 2"


async def test_a_server_that_does_not_let_us_back_in_has_a_time_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, peer = LoopClock(monkeypatch), WebPeer()
    async with conversation(tmp_path, peer, f"startup_timeout_sec = {LIMIT_S}\n") as client:
        thread_id = await client.start_thread()
        assert await look(client, thread_id) == "call 1"
        peer.known.clear()
        peer.answers["initialize"] = [None]
        refused = asyncio.create_task(look_refused(client, thread_id))
        await peer.changes.until(lambda: peer.methods().count("initialize") == 2)
        clock.put_forward(LIMIT_S)
        assert await refused == (
            -32603,
            f"tool call failed for `raw/look`: timed out awaiting initialize after {LIMIT_S}s",
        )


@claim("mcp:http")
async def test_requests_carry_the_version_that_was_agreed(tmp_path: Path) -> None:
    peer = WebPeer(version="2025-03-26")
    async with conversation(tmp_path, peer) as client:
        await look(client, await client.start_thread())
    versions = [
        (seen[0], headers.get("mcp-protocol-version"))
        for seen, headers in zip(peer.seen, peer.headers, strict=True)
        if seen[0] != "GET"
    ]
    assert versions == [
        ("initialize", None),
        ("notifications/initialized", "2025-03-26"),
        ("tools/list", "2025-03-26"),
        ("tools/call", "2025-03-26"),
        ("DELETE", "2025-03-26"),
    ]


@claim("mcp:http-faults")
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer(200, b'{"jsonrpc"', JSON, cut=True), "Failed to parse JSON response: "),
        (
            Answer(200, gzip.compress(b"0" * 100), {**JSON, "content-encoding": "gzip"}),
            "content-encoding gzip from {url}, which was not asked for",
        ),
        (Answer(200, b"not gzip", {**JSON, "content-encoding": "gzip"}), "content-encoding gzip"),
    ],
    ids=["cut", "bomb", "not-gzip"],
)
async def test_a_body_that_cannot_be_read_fails_its_call_alone(
    tmp_path: Path, answer: Answer, said: str
) -> None:
    peer = WebPeer()
    async with conversation(tmp_path, peer) as client:
        thread_id = await client.start_thread()
        assert await look(client, thread_id) == "call 1"
        peer.answers["tools/call"] = [answer]
        _, message = await look_refused(client, thread_id)
        assert message.startswith(said.replace("{url}", peer.url))
        assert await look(client, thread_id) == "call 2"
    assert peer.methods().count("initialize") == 1


@claim("mcp:http-refusals")
async def test_an_error_with_the_code_of_a_timeout_is_the_servers_own(tmp_path: Path) -> None:
    peer = WebPeer()
    async with conversation(tmp_path, peer) as client:
        thread_id = await client.start_thread()
        peer.answers["tools/call"] = [Answer(400, RPC_ERROR, JSON)]
        assert await look_refused(client, thread_id) == (-32001, "refused in JSON-RPC")


async def test_a_list_that_does_not_come_is_a_start_that_timed_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app_server.mcp.connection.PAGE_S", 0.1)
    peer = WebPeer(answers={"tools/list": [None]})
    async with conversation(tmp_path, peer) as client:
        await client.start_thread()
        told = await steps_until_settled(client, "raw")
        assert told["raw"][-1][1].startswith("MCP client for `raw` timed out after 30 seconds.")


@claim("mcp:http-faults")
async def test_a_notification_that_is_not_taken_holds_up_no_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "ONE_WAY_S", 0.1)
    peer = WebPeer(answers={"notifications/initialized": [None]})
    async with conversation(tmp_path, peer) as client:
        thread_id = await client.start_thread()
        assert await look(client, thread_id) == "call 1"


@claim("mcp:http")
async def test_a_stream_that_breaks_off_is_taken_up_again(tmp_path: Path) -> None:
    result = {"content": [{"type": "text", "text": "late"}]}
    late = json.dumps({"jsonrpc": "2.0", "id": 1, "result": result})
    peer = WebPeer(
        answers={
            "tools/call": [Answer(200, b"id: one\nretry: 10\ndata:\n\n", EVENTS)],
            "GET after one": [Answer(200, f"id: two\ndata: {late}\n\n".encode(), EVENTS)],
        }
    )
    async with conversation(tmp_path, peer) as client:
        thread_id = await client.start_thread()
        assert await look(client, thread_id) == "late"
        assert await look(client, thread_id, text="x" * 100_000) == "call 1"


@claim("mcp:http-faults")
@pytest.mark.parametrize(
    "answer",
    [
        None,
        Answer(200, b'{"jsonrpc"', JSON, stays_open=True),
        Answer(200, b"data:\n\n", EVENTS, stays_open=True),
        Answer(200, b"id: one\nretry: 1\ndata:\n\n", EVENTS, stays_open=True),
    ],
    ids=["nothing", "half-json", "events", "events-with-ids"],
)
async def test_a_call_that_was_given_up_keeps_no_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer | None
) -> None:
    clock, peer = LoopClock(monkeypatch), WebPeer(answers={"tools/call": [answer]})
    async with conversation(tmp_path, peer, f"tool_timeout_sec = {LIMIT_S}\n") as client:
        thread_id = await client.start_thread()
        refused = asyncio.create_task(look_refused(client, thread_id))
        with anyio.fail_after(WAIT_S):
            await peer.holding.wait()
        for _ in range(STEPS):
            await anyio.lowlevel.checkpoint()
        clock.put_forward(LIMIT_S)
        _, message = await refused
        assert message == (
            f"tool call failed for `raw/look`: timed out awaiting tools/call after {LIMIT_S}s"
        )
        with anyio.fail_after(WAIT_S):
            await peer.hung_up.wait()
        assert await look(client, thread_id) == "call 1"
    assert "notifications/cancelled" in peer.methods()
    assert "GET after one" not in peer.methods()


async def test_a_ping_on_the_open_stream_is_answered(tmp_path: Path) -> None:
    ping = b'data: {"jsonrpc": "2.0", "id": 9, "method": "ping"}\n\n'
    peer = WebPeer(events=ping)
    async with conversation(tmp_path, peer) as client:
        await client.start_thread()
        with anyio.fail_after(WAIT_S):
            await peer.answered.wait()
    assert ("answer", "session-1") in peer.seen
