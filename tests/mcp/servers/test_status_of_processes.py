"""mcp: what a status says of a server's process, and what that wrote (docs/mcp.md, "Status")."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support.harness import WAIT_S, claim, serve, stdio_server
from tests.support.mcp_peers.calls import steps_until_settled
from tests.support.mcp_peers.reloads import Thread, thread_with
from tests.support.paths import MCP_PEER

MEMBERS = {
    "protocolVersion", "pid", "rssBytes", "sharedBy", "startedAtMs", "restarts", "lastError",
    "toolsCachedAtMs", "lastFault",
}  # fmt: skip
SECRET = "a-secret-of-many-characters"


async def status_of(thread: Thread, **params: Any) -> Any:
    (row,) = (await thread.client.call("mcpServerStatus/list", params))["data"]
    return {member: row[member] for member in MEMBERS}


async def output_until(
    thread: Thread, params: dict[str, Any], holds: Callable[[str], bool]
) -> list[str]:
    """Read the output of the thread's server until it is there; returns its lines."""
    with anyio.fail_after(WAIT_S):
        while True:
            (output,) = (await thread.client.call("mcpServer/output/read", params))["data"]
            assert output["threadId"] == thread.id
            if holds(output["text"]):
                return str(output["text"]).splitlines()


def talkative(more: str = f"exec {sys.executable} {MCP_PEER}") -> str:
    """Write the table of a server that prints its secrets, and then does something else."""
    script = f'echo "pid $$ has $TOKEN, $PLAIN" >&2; echo "Bearer abcdefghijk" >&2; {more}'
    return (
        f'[mcp_servers.raw]\ncommand = "sh"\nargs = {json.dumps(["-c", script])}\n'
        f'env = {{ TOKEN = "{SECRET}", PLAIN = "not-so-{SECRET}" }}\n'
    )


@claim("mcp:status-process")
async def test_a_status_names_the_process_and_its_past(tmp_path: Path) -> None:
    async with thread_with(tmp_path, stdio_server("raw"), "raw") as thread:
        pid, _ = await thread.direct("whoami")
        before = await status_of(thread, threadId=thread.id)
        assert before["rssBytes"] > 1_000_000
        assert before["startedAtMs"] > 1_500_000_000_000
        assert before["protocolVersion"] is not None
        expected = {
            "pid": pid,
            "sharedBy": 1,
            "restarts": 0,
            "lastError": None,
            "toolsCachedAtMs": None,
            "lastFault": None,
        }
        assert {key: before[key] for key in expected} == expected
        await thread.client.call("mcpServer/restart", {"name": "raw", "threadId": thread.id})
        await steps_until_settled(thread.client, "raw")
        after = await status_of(thread, threadId=thread.id)
        assert (after["restarts"], after["pid"] != pid) == (1, True)
        trial = await status_of(thread)
        assert (trial["sharedBy"], trial["restarts"]) == (None, None)


@claim("mcp:status-process")
async def test_server_whose_settings_contradict_is_shared_by_nobody(tmp_path: Path) -> None:
    config = stdio_server("raw", lazy="true", required="true")
    async with serve(tmp_path, config=config) as served, served.client() as client:
        thread_id = await client.start_thread()
        await steps_until_settled(client, "raw")
        (row,) = (await client.call("mcpServerStatus/list", {"threadId": thread_id}))["data"]
        assert (row["runtimeStatus"], row["sharedBy"], row["pid"]) == ("failed", None, None)


@claim("mcp:status-process")
async def test_clients_without_the_opt_in_do_not_see_it(tmp_path: Path) -> None:
    async with (
        serve(tmp_path, config=stdio_server("raw")) as served,
        served.client(experimental=False) as client,
    ):
        (row,) = (await client.call("mcpServerStatus/list", {}))["data"]
        assert MEMBERS & row.keys() == set()


@claim("mcp:status-process")
async def test_the_last_error_has_the_command_and_no_secret(tmp_path: Path) -> None:
    script = f'echo "cannot use $TOKEN" >&2; exec {sys.executable} {MCP_PEER}'
    config = (
        f'[mcp_servers.raw]\ncommand = "sh"\nargs = {json.dumps(["-c", script])}\n'
        f'env = {{ TOKEN = "{SECRET}" }}\n'
    )
    async with thread_with(tmp_path, config, "raw") as thread:
        call = {"threadId": thread.id, "server": "raw", "tool": "die"}
        await thread.client.refusal("mcpServer/tool/call", call)
        with anyio.fail_after(WAIT_S):
            while (row := await status_of(thread, threadId=thread.id))["lastError"] is None:
                pass
        assert row["lastError"].startswith("sh: ")
        assert "cannot use ***" in row["lastError"]
        assert SECRET not in "".join(thread.client.transcript)
        assert (row["pid"], row["rssBytes"]) == (None, None)


@claim("mcp:status-process")
@pytest.mark.parametrize("share", ["thread", "home"])
async def test_the_last_error_of_a_start_has_the_last_lines(tmp_path: Path, share: str) -> None:
    script = "for n in 1 2 3 4 5 6; do echo line $n $TOKEN >&2; done; exit 3"
    config = (
        f'[mcp_servers.raw]\ncommand = "sh"\nargs = {json.dumps(["-c", script])}\n'
        f'env = {{ TOKEN = "{SECRET}" }}\nprotocol = "2025"\nshare = "{share}"\n'
    )
    async with serve(tmp_path, config=config) as served, served.client() as client:
        thread_id = await client.start_thread()
        assert (await steps_until_settled(client, "raw"))["raw"][-1][0] == "failed"
        (row,) = (await client.call("mcpServerStatus/list", {"threadId": thread_id}))["data"]
        lines = "\n".join(f"line {number} ***" for number in range(2, 7))
        reason = "MCP startup failed: the server ended too early: exit status 3"
        assert row["lastError"] == f"sh: {reason}: {lines}"


@claim("mcp:output")
async def test_what_processes_wrote_is_read_without_secrets_also_after_a_restart(
    tmp_path: Path,
) -> None:
    async with thread_with(tmp_path, talkative(), "raw") as thread:
        params = {"name": "raw", "threadId": thread.id}
        first, _ = await thread.direct("whoami")
        await thread.client.call("mcpServer/restart", params)
        await steps_until_settled(thread.client, "raw")
        second, _ = await thread.direct("whoami")
        lines = [f"pid {pid} has ***, ***" for pid in (first, second)]
        for asked in (params, {"name": "raw"}):
            found = await output_until(thread, asked, lambda text: text.count("Bearer") == 2)
            assert [line for line in found if line.startswith("pid")] == lines
            assert found.count("Bearer ***") == 2
        error = await thread.client.refusal("mcpServer/output/read", {"name": "no"})
        assert error.data["code"] == "unknownMcpServer"


@claim("mcp:output")
async def test_what_was_written_says_how_the_server_stands(tmp_path: Path) -> None:
    config = 'command = "none-such"\n'
    tables = {"off": "enabled = false\n", "gone": "", "later": "lazy = true\n"}
    servers = "".join(f"[mcp_servers.{name}]\n{config}{more}" for name, more in tables.items())
    async with (
        serve(tmp_path, config=servers + stdio_server("raw")) as served,
        served.client() as client,
    ):

        async def read(name: str) -> Any:
            return (await client.call("mcpServer/output/read", {"name": name}))["data"]

        assert [await read(name) for name in (*tables, "raw")] == [[], [], [], []]
        thread_id = await client.start_thread()
        await steps_until_settled(client, "raw", "gone")
        nothing = {"threadId": thread_id, "text": "", "startedAtMs": None, "lastError": None}
        error = "MCP startup failed: none-such: No such file or directory (os error 2)"
        assert await read("off") == [{**nothing, "runtimeStatus": "disabled"}]
        assert await read("later") == [{**nothing, "runtimeStatus": "notStarted"}]
        assert await read("gone") == [{**nothing, "runtimeStatus": "failed", "lastError": error}]
        [raw] = await read("raw")
        [row] = (await client.call("mcpServerStatus/list", {"serverName": "raw"}))["data"]
        assert raw["runtimeStatus"] == "connected"
        assert 0 < raw["startedAtMs"] <= row["startedAtMs"]


@claim("mcp:output")
async def test_the_newest_whole_lines_stay_of_much_output(tmp_path: Path) -> None:
    more = "i=0; while [ $i -lt 20000 ]; do echo line $i >&2; i=$((i+1)); done; "
    config = talkative(more + f"exec {sys.executable} {MCP_PEER}")
    async with thread_with(tmp_path, config, "raw") as thread:
        params = {"name": "raw", "threadId": thread.id}
        found = await output_until(thread, params, lambda text: text.endswith("line 19999\n"))
        assert found == [f"line {number}" for number in range(20_000 - len(found), 20_000)]
        assert 30_000 < sum(map(len, found)) <= 64 * 1024
