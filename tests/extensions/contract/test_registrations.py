"""Servers that an extension registers, as the clients of a thread and its model meet them."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from app_server.extensions.contract.registration import (
    RuntimeMetadata,
    Telemetry,
)
from tests.support.harness import WAIT_S, claim
from tests.support.mcp_peers.registered_calls import items_of, run_calls
from tests.support.mcp_peers.registrations import (
    BEARER,
    STARTED,
    call,
    open_shop,
    registered,
    tool,
)
from tests.support.mcp_peers.shelf import Generation
from tests.support.mcp_peers.web_peer import WebPeer
from tests.support.model import Gate, calls, says


async def reached(event: asyncio.Event) -> None:
    with anyio.fail_after(WAIT_S):
        await event.wait()


async def until(condition: Callable[[], bool]) -> None:
    """Let others go on until something holds: it is told to nobody."""
    with anyio.fail_after(WAIT_S):
        while not condition():
            await anyio.sleep(0.001)


@claim("extensions:bearer", "secrets:none-leave")
async def test_a_registered_server_is_called_with_its_bearer_which_nobody_sees(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="app_server")
    async with open_shop(tmp_path) as shop:
        shop.put(RuntimeMetadata(telemetry=Telemetry(origin="https://behind.example")))
        thread_id = await shop.thread()
        items = items_of(await run_calls(shop, thread_id, call()))
        assert [item["result"]["content"] for item in items] == [
            [{"type": "text", "text": "call 1"}]
        ]
        listed = await shop.client.call("mcpServerStatus/list", {"threadId": thread_id})
        assert [(e["name"], e["authStatus"], e["httpOrigin"]) for e in listed["data"]] == [
            ("shelved", "bearerToken", "https://behind.example")
        ]
        without_thread = await shop.client.call("mcpServerStatus/list", {})
        assert [entry["name"] for entry in without_thread["data"]] == ["shelved"]
        await shop.client.call("config/read", {"includeLayers": True})
        transcript = "\n".join(shop.client.transcript)
        sent = {headers["authorization"] for headers in shop.peer.headers}
    assert sent == {f"Bearer {BEARER}"}
    assert BEARER not in transcript
    assert BEARER not in "\n".join(record.getMessage() for record in caplog.records)
    stored = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in stored if BEARER.encode() in path.read_bytes()] == []


@claim("extensions:no-sign-in")
async def test_nobody_signs_in_to_a_registered_server_or_to_what_it_hides(tmp_path: Path) -> None:
    hidden = '[mcp_servers.shelved]\nurl = "http://127.0.0.1:1/mcp"\n'
    async with open_shop(tmp_path, hidden) as shop:
        shop.put()
        thread_id = await shop.thread()
        before = len(shop.peer.seen)
        for params in ({"name": "shelved"}, {"name": "shelved", "threadId": thread_id}):
            refusal = await shop.client.refusal("mcpServer/oauth/login", params)
            assert (refusal.code, refusal.message) == (
                -32600,
                "No MCP server named 'shelved' found.",
            )
        assert len(shop.peer.seen) == before


@claim("extensions:veto")
async def test_a_name_that_is_switched_off_is_not_registered(tmp_path: Path) -> None:
    off = '[mcp_servers.shelved]\nurl = "http://127.0.0.1:1/mcp"\nenabled = false\n'
    async with open_shop(tmp_path, off) as shop:
        shop.put()
        thread_id = await shop.client.start_thread()
        await shop.client.turn(thread_id, "hi")
        listed = await shop.client.call("mcpServerStatus/list", {"threadId": thread_id})
        assert [(e["name"], e["runtimeStatus"]) for e in listed["data"]] == [
            ("shelved", "disabled")
        ]
        assert shop.peer.seen == []
        assert shop.owner.taken == 0


@claim("extensions:boundary")
async def test_what_is_published_during_a_turn_is_there_at_its_next_request(
    tmp_path: Path,
) -> None:
    # However busy the machine is, the next request waits for the server.
    async with open_shop(tmp_path, "mcp_optional_startup_grace_ms = 0\n") as shop:
        thread_id = await shop.client.start_thread()
        gate = Gate()
        shop.served.model.scripts += [
            [gate, *calls({"name": "nothing", "arguments": {}})],
            says("done"),
        ]
        user_input = [{"type": "text", "text": "go"}]
        await shop.client.call("turn/start", {"threadId": thread_id, "input": user_input})
        await gate.wait_until_reached()
        shop.put()
        gate.opened.set()
        messages = await shop.client.until("turn/completed")
        steps = [m["params"]["status"] for m in messages if m.get("method") == STARTED]
        assert steps == ["starting", "ready"]
        assert [shop.namespaces(0), shop.namespaces(1)] == [[], ["mcp__shelved"]]
        # Published again with equal values: nobody notices.
        shop.put()
        await shop.client.call("turn/start", {"threadId": thread_id, "input": user_input})
        messages = await shop.client.until("turn/completed")
        assert [m for m in messages if m.get("method") == STARTED] == []
        assert shop.namespaces() == ["mcp__shelved"]
        assert (shop.peer.sessions, shop.owner.taken) == (1, 1)


@claim("apps:b4")
async def test_filters_and_metadata_change_without_a_restart(tmp_path: Path) -> None:
    async with open_shop(tmp_path, tools=[tool("look"), tool("touch")]) as shop:
        shop.put()
        thread_id = await shop.thread()
        shop.put(RuntimeMetadata(plugin_display_names=("P",)), enabled_tools=["touch"])
        shop.served.model.scripts.append(says("hi"))
        await shop.client.turn(thread_id, "hi")
        [namespace] = [
            entry
            for entry in shop.served.model.requests[-1]["tools"]
            if entry["type"] == "namespace"
        ]
        assert [(entry["name"], entry["description"]) for entry in namespace["tools"]] == [
            ("touch", "Part of the plugin `P`.")
        ]
        assert shop.peer.sessions == 1


@claim("extensions:leases")
async def test_a_server_that_is_replaced_ends_its_calls_before_its_owner_is_let_go(
    tmp_path: Path,
) -> None:
    async with open_shop(tmp_path) as shop, WebPeer(tools=[tool()]).serve() as second:
        shop.put()
        thread_id = await shop.thread()
        assert shop.owner.leases == 1
        hold = shop.peer.hold = asyncio.Event()
        params = {"threadId": thread_id, "server": "shelved", "tool": "look"}
        slow = await shop.client.request("mcpServer/tool/call", params)
        await reached(shop.peer.holding)
        newer = Generation("gen-2")
        shop.shelf.publish(registered(second, newer))
        await shop.client.turn(thread_id, "hi")
        assert (shop.owner.leases, newer.leases) == (1, 1)
        fresh = await shop.client.call("mcpServer/tool/call", params)
        assert fresh["content"] == [{"type": "text", "text": "call 1"}]
        assert (second.calls, shop.peer.calls) == (1, 0)
        hold.set()
        answer = await shop.client.answer(slow)
        assert answer["result"]["content"] == [{"type": "text", "text": "call 1"}]
        # The end of its session is the last that the old server receives.
        await until(lambda: shop.owner.leases == 0)
        assert shop.peer.methods()[-1] == "DELETE"
        shop.shelf.publish()
        await shop.client.turn(thread_id, "hi")
        assert shop.namespaces() == []
        await until(lambda: newer.leases == 0)


@claim("extensions:leases")
async def test_no_lease_outlives_its_thread(tmp_path: Path) -> None:
    async with open_shop(tmp_path) as shop:
        shop.put()
        thread_id = await shop.thread()
        await shop.client.call("mcpServerStatus/list", {})
        await until(lambda: shop.owner.leases == 1)
        await shop.client.call("thread/archive", {"threadId": thread_id})
        await until(lambda: shop.owner.leases == 0)
        assert shop.owner.taken == 2


@claim("extensions:reload")
async def test_a_reload_lets_extensions_look_anew_with_the_settings_of_now(
    tmp_path: Path,
) -> None:
    async with open_shop(tmp_path) as shop:
        thread_id = await shop.client.start_thread()
        text = (tmp_path / "config.toml").read_text()
        (tmp_path / "config.toml").write_text(f'service_tier = "new"\n{text}')
        shop.put()
        await shop.client.call("config/mcpServer/reload")
        await shop.client.wait_for(STARTED, lambda p: p["status"] == "ready")
        [refreshed] = shop.shelf.refreshed
        assert (refreshed.mode, refreshed.config["service_tier"]) == ("discover", "new")
        asked = shop.shelf.asked[-1]
        assert (asked.thread_id, asked.config["service_tier"]) == (thread_id, "new")
