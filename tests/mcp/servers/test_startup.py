"""mcp: servers start side by side, fail, and are waited for."""

import sys
from pathlib import Path
from typing import Any

import pytest

from app_server.mcp.catalog.config import McpSettings, ServerConfig, StdioTransport
from app_server.mcp.servers.pool import ServerPool
from app_server.mcp.servers.server_set import ServerSet
from app_server.mcp.servers.waits import wait_for_required
from tests.support.harness import claim, serve, stdio_server
from tests.support.mcp_peers.calls import steps_until_settled
from tests.support.mcp_peers.no_processes import NoProcesses
from tests.support.mcp_peers.shelf import Generation
from tests.support.model import tools_of_thread
from tests.support.paths import MCP_PEER


@claim("mcp:startup-notifications", "mcp:startup-errors", "mcp:start-does-not-wait")
async def test_servers_start_side_by_side_and_each_says_how_it_went(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOPE", raising=False)
    config = (
        stdio_server("good")
        + stdio_server("garbage", "garbage", "flood")
        + stdio_server("dies", "die")
        + stdio_server("hangs", "hang", startup_timeout_sec="0.2")
        + stdio_server("off", enabled="false")
        + stdio_server("far", environment_id='"far"')
        + '[mcp_servers.missing]\ncommand = "/no/such/program"\n'
        + '[mcp_servers."x!"]\ncommand = "true"\n'
        + '[mcp_servers.web]\nurl = "http://127.0.0.1:1/mcp?key=secret"\n'
        + '[mcp_servers.strange]\nurl = "ftp://x"\n'
        + '[mcp_servers.tokenless]\nurl = "http://127.0.0.1:1"\nbearer_token_env_var = "NOPE"\n'
    )
    async with serve(tmp_path, config=config) as served, served.client() as client:
        served.services.mcp_pool.retry_waits_s = (0, 0)
        await client.request("thread/start", {})
        first = [await client.receive(), await client.receive()]
        assert first[0]["result"]["thread"]["status"] == {"type": "idle"}
        assert first[1]["method"] == "thread/started"
        names = (
            *("good", "garbage", "dies", "hangs", "missing"),
            *("x!", "web", "strange", "tokenless"),
        )
        told = await steps_until_settled(client, *names)

        def failed(name: str, reason: str) -> list[Any]:
            text = f"MCP client for `{name}` failed to start: MCP startup failed: {reason}"
            return [("starting", None), ("failed", text)]

        assert told == {
            "good": [("starting", None), ("ready", None)],
            "garbage": [("starting", None), ("ready", None)],
            "dies": told["dies"],
            "hangs": [
                ("starting", None),
                (
                    "failed",
                    "MCP client for `hangs` timed out after 0.2 seconds. Add or adjust "
                    "`startup_timeout_sec` in your config.toml:\n"
                    "[mcp_servers.hangs]\nstartup_timeout_sec = XX",
                ),
            ],
            "missing": failed(
                "missing", "/no/such/program: No such file or directory (os error 2)"
            ),
            "x!": failed(
                "x!", "Invalid MCP server name 'x!': must match pattern ^[a-zA-Z0-9_:@/.-]+$"
            ),
            "web": failed("web", "cannot reach http://127.0.0.1:1/mcp: Connection refused"),
            "strange": failed("strange", "its url is not an http URL"),
            "tokenless": failed(
                "tokenless", "Environment variable NOPE for MCP server 'tokenless' is not set"
            ),
        }
        assert told["dies"][1][1].startswith(
            "MCP client for `dies` failed to start: MCP startup failed: the server ended too early"
        )


@claim("mcp:startup-cancel")
async def test_an_interrupt_without_a_turn_cancels_what_still_starts(tmp_path: Path) -> None:
    config = stdio_server("good") + stdio_server("hangs", "hang")
    async with serve(tmp_path, config=config) as served, served.client() as client:
        thread_id = await client.start_thread()
        await client.wait_for(
            "mcpServer/startupStatus/updated",
            lambda p: (p["name"], p["status"]) == ("good", "ready"),
        )
        cancel = {"threadId": thread_id, "turnId": ""}
        assert await client.call("turn/interrupt", cancel) == {}
        told = await client.wait_for("mcpServer/startupStatus/updated")
        assert told["params"] == {
            "threadId": thread_id,
            "name": "hangs",
            "status": "cancelled",
            "error": None,
            "failureReason": None,
        }
        assert await client.call("turn/interrupt", cancel) == {}
        status = await client.call(
            "mcpServerStatus/list", {"threadId": thread_id, "detail": "toolsAndAuthOnly"}
        )
        assert [(s["name"], s["runtimeStatus"]) for s in status["data"]] == [
            ("good", "connected"),
            ("hangs", "cancelled"),
        ]


@claim("mcp:required")
async def test_a_required_server_that_fails_fails_the_thread(tmp_path: Path) -> None:
    required = '[mcp_servers.must]\ncommand = "/no/such"\nrequired = true\n'
    async with serve(tmp_path, config=required) as served, served.client() as client:
        error = await client.refusal("thread/start", {})
        assert error.code == -32603
        assert error.message == (
            "error creating thread: Fatal error: Failed to initialize session: required MCP "
            "servers failed to initialize: must: MCP startup failed: /no/such: No such file or "
            "directory (os error 2)"
        )
        assert error.data["code"] == "requiredMcpServersFailed"
        assert (await client.call("thread/loaded/list", {}))["data"] == []
        config: dict[str, Any] = {"mcp_servers.must.command": sys.executable}
        config["mcp_servers.must.args"] = [str(MCP_PEER)]
        result = await client.call("thread/start", {"config": config})
        told = await steps_until_settled(client, "must")
        assert told["must"] == [("starting", None), ("ready", None)]
        status = await client.call("mcpServerStatus/list", {"threadId": result["thread"]["id"]})
        assert status["data"][0]["runtimeStatus"] == "connected"


@claim("mcp:grace")
async def test_the_first_request_waits_for_servers_but_not_for_long(tmp_path: Path) -> None:
    config = "mcp_optional_startup_grace_ms = 50\n" + stdio_server("hangs", "hang")
    async with serve(tmp_path, config=config) as served, served.client() as client:
        thread_id = await client.start_thread()
        assert (await client.turn(thread_id, "hi"))["status"] == "completed"
        assert [tool["name"] for tool in tools_of_thread(served.model.requests[0])] == [
            "list_mcp_resources",
            "list_mcp_resource_templates",
            "read_mcp_resource",
        ]
    config = "mcp_optional_startup_grace_ms = 0\n" + stdio_server("good")
    async with serve(tmp_path, config=config) as served, served.client() as client:
        thread_id = await client.start_thread()
        await client.turn(thread_id, "hi")
        assert served.model.requests[0]["tools"][-1]["name"] == "mcp__good"


class CountedLooks(NoProcesses):
    """Counts the servers that were made: each asks for its environment."""

    def __init__(self) -> None:
        self.count = 0

    def has(self, environment_id: str) -> bool:
        """Count, and answer."""
        self.count += 1
        return super().has(environment_id)


async def test_answer_to_a_thread_start_waits_for_no_making_of_servers() -> None:
    looks = CountedLooks()
    configs = {
        name: ServerConfig(name, StdioTransport("/no/such"), share="home")
        for name in (f"shared{number}" for number in range(11))
    }
    servers = ServerSet(McpSettings(configs), "/", ServerPool(looks), lambda *_: None)
    await wait_for_required(servers)
    assert looks.count == 0
    assert list(servers.servers) == list(configs)
    assert looks.count == 11


async def test_registration_is_leased_before_its_server_starts() -> None:
    owner = Generation("owner")
    config = ServerConfig("registered", StdioTransport("/no/such"), owner=owner)
    servers = ServerSet(
        McpSettings({"registered": config}), "/", ServerPool(NoProcesses()), lambda *_: None
    )
    assert owner.leases == 1
    servers.stop()
    await servers.run()
    assert owner.leases == 0
