"""requirements: which MCP servers may run."""

from pathlib import Path
from typing import Any

import pytest

from app_server.config.requirements import (
    ServerIdentity,
)
from app_server.mcp.catalog.tables import parse_server
from tests.support.harness import WireClient, claim, serve, stdio_server
from tests.support.mcp_peers.calls import steps_until_settled
from tests.support.requirements import demand


@pytest.mark.parametrize(
    ("demanded", "configured", "runs"),
    [
        (None, {"command": "x"}, True),
        ({}, {"command": "x"}, False),
        ({"b": ServerIdentity(command="x")}, {"command": "x"}, False),
        ({"a": ServerIdentity(command="x")}, {"command": "x"}, True),
        ({"a": ServerIdentity(command="x")}, {"command": "/bin/x"}, False),
        ({"a": ServerIdentity(command="x")}, {"url": "x"}, False),
        ({"a": ServerIdentity(url="http://h/")}, {"url": "http://h/"}, True),
        ({"a": ServerIdentity(url="http://h/")}, {"url": "http://h"}, False),
        ({"a": ServerIdentity(url="x")}, {"command": "x"}, False),
    ],
)
def test_a_server_runs_if_it_is_what_is_listed(
    demanded: Any, configured: dict[str, str], runs: bool
) -> None:
    assert parse_server("a", configured, demanded).allowed is runs


THREE = (
    stdio_server("good")
    + stdio_server("unlisted", required="true")
    + stdio_server("other")
    + '[mcp_servers.web]\nurl = "http://127.0.0.1:1/mcp"\n'
)


def listing(name: str, command: str) -> str:
    return f"[mcp_servers.{name}.identity]\ncommand = {command!r}\n"


def command_of(server: str) -> str:
    return server.split('command = "')[1].split('"')[0]


async def statuses(client: WireClient, thread_id: str | None = None) -> dict[str, Any]:
    params = {"threadId": thread_id, "detail": "toolsAndAuthOnly"}
    found = await client.call("mcpServerStatus/list", params)
    return {
        entry["name"]: (entry["runtimeStatus"], bool(entry["tools"]), entry["toolsError"])
        for entry in found["data"]
    }


@claim("requirements:servers")
async def test_only_servers_that_are_listed_run(tmp_path: Path) -> None:
    demand(tmp_path, listing("good", command_of(THREE)) + listing("other", "something else"))
    off = ("disabled", False, None)
    async with serve(tmp_path, config=THREE) as served, served.client() as client:
        more = {"mcp_servers.more.command": command_of(THREE)}
        thread_id = await client.start_thread(config=more)
        assert await steps_until_settled(client, "good") == {
            "good": [("starting", None), ("ready", None)]
        }
        assert await statuses(client, thread_id) == {
            "good": ("connected", True, None),
            **dict.fromkeys(("more", "other", "unlisted", "web"), off),
        }
        call = {"threadId": thread_id, "server": "unlisted", "tool": "plain"}
        refusals = [
            await client.refusal("mcpServer/tool/call", call),
            await client.refusal("mcpServer/resource/read", {"server": "other", "uri": "mem://a"}),
        ]
        assert [(error.code, error.message) for error in refusals] == [
            (-32603, "unknown MCP server 'unlisted'"),
            (-32603, "unknown MCP server 'other'"),
        ]
        assert await statuses(client) == {
            "good": (None, True, None),
            **dict.fromkeys(("other", "unlisted", "web"), (None, False, None)),
        }


@claim("requirements:servers")
@pytest.mark.parametrize("of_thread", [False, True])
async def test_a_server_that_may_not_run_is_not_signed_in_to(
    tmp_path: Path, of_thread: bool
) -> None:
    demand(tmp_path, "[mcp_servers]")
    async with serve(tmp_path, config=THREE) as served, served.client() as client:
        thread_id = await client.start_thread() if of_thread else None
        error = await client.refusal(
            "mcpServer/oauth/login", {"name": "web", "threadId": thread_id}
        )
    assert (error.code, error.message, error.data) == (
        -32603,
        "failed to resolve MCP server runtime: the MCP server is disabled by managed requirements",
        {"code": "mcpServerNotAllowed", "name": "web"},
    )


@claim("requirements:servers")
async def test_a_reload_reads_the_demands_again(tmp_path: Path) -> None:
    async with serve(tmp_path, config=stdio_server("good")) as served, served.client() as client:
        thread_id = await client.start_thread()
        await steps_until_settled(client, "good")
        demand(tmp_path, "[mcp_servers]")
        await client.call("config/mcpServer/reload")
        assert await statuses(client, thread_id) == {"good": ("disabled", False, None)}
        demand(tmp_path, listing("good", command_of(THREE)))
        await client.call("config/mcpServer/reload")
        assert await steps_until_settled(client, "good") == {
            "good": [("starting", None), ("ready", None)]
        }
        file = demand(tmp_path, "[mcp_servers.good]")
        error = await client.refusal("config/mcpServer/reload")
        assert (error.code, error.message) == (
            -32603,
            f"failed to refresh MCP servers: failed to parse requirements layer {file}:1:1: "
            "missing field `identity`",
        )
        assert await statuses(client, thread_id) == {"good": ("connected", True, None)}
