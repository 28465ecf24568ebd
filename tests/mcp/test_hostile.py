"""Servers that do their worst harm themselves and nobody else."""

import sys
from pathlib import Path

import pytest

from tests.support.harness import WireClient, claim, serve, stdio_server
from tests.support.mcp_peers.calls import ALLOWED_MIB, peak_mib
from tests.support.model import calls
from tests.support.paths import MCP_PEER

HOSTILE = MCP_PEER.with_name("hostile_peer.py")
KINDS = ("hang", "flood", "garbage", "huge", "many", "die")
STARTED = "mcpServer/startupStatus/updated"


def hostile_servers() -> str:
    tables = [
        f'[mcp_servers.{kind}]\ncommand = "{sys.executable}"\nargs = ["{HOSTILE}", "{kind}"]\n'
        for kind in KINDS
    ]
    return "\n".join(["mcp_optional_startup_grace_ms = 1", stdio_server("good"), *tables])


async def until_ready(client: WireClient, thread_id: str, *names: str) -> None:
    left = set(names)
    while left:
        message = await client.wait_for(STARTED, lambda p: p["threadId"] == thread_id)
        if message["params"]["status"] == "ready":
            left.discard(message["params"]["name"])


@claim("mcp:hostile")
@pytest.mark.process
async def test_nobody_waits_for_a_server_that_does_its_worst(tmp_path: Path) -> None:
    async with (
        serve(tmp_path, config=hostile_servers()) as served,
        served.client() as client,
        served.client() as other,
    ):
        thread_id = await client.start_thread()
        await until_ready(client, thread_id, "good", "flood", "garbage", "huge", "many", "die")
        before = peak_mib()
        acts = {
            kind: await client.request(
                "mcpServer/tool/call", {"threadId": thread_id, "server": kind, "tool": "act"}
            )
            for kind in KINDS
        }
        # Another thread starts, calls a tool, and is interrupted, all while those are served.
        second = await other.start_thread(config={"mcp_servers.hang.enabled": False})
        await until_ready(other, second, "good")
        good = {"threadId": second, "server": "good", "tool": "plain"}
        assert (await other.call("mcpServer/tool/call", good))["content"]
        served.model.scripts.append(calls({"namespace": "mcp__good", "name": "slow"}))
        turn = {"threadId": second, "input": [{"type": "text", "text": "go"}]}
        turn_id = (await other.call("turn/start", turn))["turn"]["id"]
        await other.wait_for("item/started", lambda p: p["item"]["type"] == "mcpToolCall")
        await other.call("turn/interrupt", {"threadId": second, "turnId": turn_id})
        ended = (await other.wait_for("turn/completed"))["params"]["turn"]
        assert ended["status"] == "interrupted"
        assert (await client.call("mcpServer/tool/call", {**good, "threadId": thread_id}))[
            "content"
        ]

        answers = {
            kind: await client.answer(request) for kind, request in acts.items() if kind != "hang"
        }
        done = [{"type": "text", "text": "done"}]
        assert answers["flood"]["result"]["content"] == done
        assert answers["garbage"]["result"]["content"] == done
        [block] = answers["many"]["result"]["content"]
        assert block["text"].startswith("Truncated tool output:")
        for kind in ("huge", "die"):
            assert answers[kind]["error"]["message"] == (
                f"tool call failed for `{kind}/act`: Transport closed"
            )
        assert peak_mib() - before < ALLOWED_MIB
