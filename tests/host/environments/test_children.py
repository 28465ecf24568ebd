"""Processes on other machines end with what they were started for."""

import json
import os
import signal
import sys
from pathlib import Path

import anyio
import pytest

from tests.support.harness import WAIT_S, claim, serve, stdio_server
from tests.support.host.environments import FAR, add, call, status
from tests.support.host.exec_conversations import listening
from tests.support.host.exec_peer import STUBBORN, Holders, exec_server
from tests.support.mcp_peers.calls import settled
from tests.support.paths import MCP_PEER
from tests.support.processes import running


@claim("environment:children-end")
@pytest.mark.process
async def test_unloading_a_thread_lets_its_processes_elsewhere_end(tmp_path: Path) -> None:
    config = stdio_server("raw", environment_id=FAR)
    async with (
        listening() as url,
        serve(tmp_path, config=config) as served,
        served.client() as client,
    ):
        await add(client, url)
        thread_id = await client.start_thread()
        pid, _ = json.loads(await call(client, thread_id, "whoami"))
        running_there = os.pidfd_open(pid)
        await client.call("thread/archive", {"threadId": thread_id})
        with anyio.fail_after(WAIT_S):
            await anyio.wait_readable(running_there)
        os.close(running_there)
        assert await status(client) == {"status": "ready"}


@pytest.mark.slow
@claim("environment:children-end")
@pytest.mark.process
async def test_unloading_a_thread_ends_its_processes_elsewhere(tmp_path: Path) -> None:
    async with (
        Holders(tmp_path).watch() as holders,
        exec_server() as far,
        serve(tmp_path / "home", config=stubborn(tmp_path, holders, FAR)) as served,
        served.client() as client,
    ):
        await add(client, far.url)
        thread_id = await client.start_thread()
        assert await settled(client) == ("ready", None)
        await holders.held(2)
        await client.call("thread/archive", {"threadId": thread_id})
        await holders.ended()
        assert await status(client) == {"status": "ready"}


def stubborn(folder: Path, holders: Holders, environment_id: str = '"local"') -> str:
    """Configure a server that ends only when it is killed, and so does its child."""
    script = folder / "stubborn.py"
    script.write_text(STUBBORN)
    return (
        f"[mcp_servers.raw]\ncommand = {json.dumps(sys.executable)}\n"
        f"args = {json.dumps([str(script), str(holders.path), str(MCP_PEER)])}\n"
        f"environment_id = {environment_id}\n"
    )


@pytest.mark.slow
@claim("mcp:kill-9")
@pytest.mark.process
async def test_children_do_not_outlive_a_server_that_was_killed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with Holders(tmp_path).watch() as holders:
        home.mkdir()
        (home / "config.toml").write_text(stubborn(tmp_path, holders))
        async with running(home) as server, server.client() as client:
            await client.start_thread()
            assert await settled(client) == ("ready", None)
            await holders.held(2)
            os.kill(server.process.pid, signal.SIGKILL)
            await holders.ended()


@pytest.mark.slow
@claim("mcp:kill-9")
@pytest.mark.process
@pytest.mark.parametrize("victim", ["app-server", "exec-server"])
async def test_processes_elsewhere_do_not_outlive_either_end_that_was_killed(
    tmp_path: Path, victim: str
) -> None:
    home = tmp_path / "home"
    async with Holders(tmp_path).watch() as holders:
        home.mkdir()
        (home / "config.toml").write_text(stubborn(tmp_path, holders, FAR))
        async with exec_server() as far, running(home) as server, server.client() as client:
            await add(client, far.url)
            await client.start_thread()
            assert await settled(client) == ("ready", None)
            await holders.held(2)
            ends = {"app-server": server.process.pid, "exec-server": far.process.pid}
            os.kill(ends[victim], signal.SIGKILL)
            await holders.ended()


@pytest.mark.process
async def test_an_exec_server_ends_its_processes_first_on_sigterm(
    tmp_path: Path,
) -> None:
    config = stdio_server("raw", environment_id=FAR)
    async with (
        exec_server() as far,
        serve(tmp_path, config=config) as served,
        served.client() as client,
    ):
        await add(client, far.url)
        thread_id = await client.start_thread()
        assert await settled(client) == ("ready", None)
        pid, _ = json.loads(await call(client, thread_id, "whoami"))
        running_there = os.pidfd_open(pid)
        os.kill(far.process.pid, signal.SIGTERM)
        assert await far.ended() == 0
        with anyio.fail_after(WAIT_S):
            await anyio.wait_readable(running_there)
        os.close(running_there)
