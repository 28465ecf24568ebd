"""Connections to exec servers that are lost, come back or are replaced."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from app_server.host.exec.client import environment as remote_environment
from app_server.host.exec.client.address import parse_exec_address
from tests.support.harness import WAIT_S, claim, serve, stdio_server
from tests.support.host.environments import FAR, NOWHERE, WHO_THERE, add, call, runtime, status
from tests.support.host.exec_peer import Holders, exec_server
from tests.support.mcp_peers.calls import settled
from tests.support.model import calls


@claim("environment:disconnect", "environment:events")
@pytest.mark.process
async def test_a_lost_connection_fails_calls_at_once_and_the_next_turn_connects_again(
    tmp_path: Path,
) -> None:
    config = stdio_server("raw", environment_id=FAR) + stdio_server("near")
    shut = tmp_path / "shut"
    os.mkfifo(shut)
    async with (
        serve(tmp_path, config=config) as served,
        served.client() as client,
        Holders(tmp_path).watch() as holders,
    ):
        async with exec_server() as far:
            address = far.url
            thread_id = await client.start_thread()
            there = {"threadId": thread_id, "environmentId": "far"}
            await add(client, address)
            event = await client.wait_for("thread/environment/connected")
            assert event["params"] == there
            await client.call("config/mcpServer/reload")
            assert await settled(client) == ("ready", None)
            pipes = {"reached": str(holders.path), "opened": str(shut)}
            params = {"threadId": thread_id, "server": "raw", "tool": "wait", "arguments": pipes}
            waiting = await client.request("mcpServer/tool/call", params)
            await holders.held(len("here"))
            far.kill()
            error = (await client.answer(waiting))["error"]
            assert (error["code"], error["message"]) == (
                -32603,
                "tool call failed for `raw/wait`: Transport closed",
            )
            event = await client.wait_for("thread/environment/disconnected")
            assert event["params"] == there
            assert (await runtime(client, thread_id))[0] == "failed"
            lost = await status(client)
            assert lost["status"] == "disconnected"
            assert lost["error"].startswith("the connection to the exec server was lost: ")
        async with exec_server("--listen", address):
            served.model.scripts = [calls({"namespace": "mcp__raw", "name": "structured"})]
            turn = await client.turn(thread_id, "go")
            assert turn["status"] == "completed"
            [output] = [i for i in served.model.requests[-1]["input"] if "output" in i]
            assert output["output"].endswith('\nOutput:\n{"b":1,"a":[2]}')
            assert await status(client) == {"status": "ready"}


@claim("environment:back")
@pytest.mark.process
@pytest.mark.slow
async def test_a_server_that_failed_while_its_exec_server_was_away_starts_when_that_is_back(
    tmp_path: Path,
) -> None:
    config = stdio_server("raw", environment_id=FAR)
    async with serve(tmp_path, config=config) as served, served.client() as client:
        assert served.services is not None
        served.services.mcp_pool.retry_waits_s = (0, 0)
        served.services.environments.retry_waits_s = (0.01, 0.05)
        async with exec_server() as far:
            address = far.url
        await add(client, address)
        thread_id = await client.start_thread()
        assert (await settled(client))[0] == "failed"
        assert (await runtime(client, thread_id))[0] == "failed"
        async with exec_server("--listen", address) as far:
            # Nobody asks for anything.
            assert await settled(client) == ("ready", None)
            assert json.loads(await call(client, thread_id, "whoami"))[1] is None
            far.kill()
            await client.wait_for("thread/environment/disconnected")
        # It was ready: the next turn starts it again, in vain.
        assert (await client.turn(thread_id, "go"))["status"] == "completed"
        assert (await runtime(client, thread_id))[0] == "failed"
        async with exec_server("--listen", address):
            assert await settled(client) == ("ready", None)
            assert json.loads(await call(client, thread_id, "whoami"))[1] is None


@claim("environment:back")
@pytest.mark.process
async def test_a_server_that_waits_starts_in_the_environment_that_takes_the_place(
    tmp_path: Path,
) -> None:
    config = stdio_server("raw", environment_id=FAR)
    async with (
        exec_server() as far,
        serve(tmp_path, config=config) as served,
        served.client() as client,
    ):
        assert served.services is not None
        served.services.mcp_pool.retry_waits_s = (0, 0)
        served.services.environments.retry_waits_s = (0.01, 0.05)
        await add(client, NOWHERE)
        await client.start_thread()
        assert (await settled(client))[0] == "failed"
        await add(client, far.url)
        assert await settled(client) == ("ready", None)


@claim("environment:back")
async def test_tries_are_shared_come_ever_more_rarely_and_end_when_nobody_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []
    enough = anyio.Event()

    @contextmanager
    def move_on_after(wait_s: float) -> Iterator[None]:
        waits.append(wait_s)
        if len(waits) > 7:
            enough.set()
        with real(0):
            yield

    real = anyio.move_on_after
    address = parse_exec_address(NOWHERE, None, None, None)
    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            place = remote_environment.RemoteEnvironment(address, tasks, lambda connected: None)
            monkeypatch.setattr(
                "app_server.host.exec.client.environment.anyio.move_on_after", move_on_after
            )
            async with anyio.create_task_group() as waiters:
                waiters.start_soon(place.wait_until_reachable)
                waiters.start_soon(place.wait_until_reachable)
                await enough.wait()
                waiters.cancel_scope.cancel()
            monkeypatch.undo()
        # The tries have ended, or we would not be here.
    ends = [min(2.0**n, 30.0) for n in range(len(waits))]
    assert waits == ends


@claim("environment:replaced")
@pytest.mark.process
async def test_an_environment_that_is_added_anew_loses_what_ran_there(tmp_path: Path) -> None:
    config = stdio_server("raw", environment_id=FAR, env_vars=WHO_THERE)
    async with (
        exec_server(environment={"WHO": "one"}) as one,
        exec_server(environment={"WHO": "two"}) as two,
        serve(tmp_path, config=config) as served,
        served.client() as client,
    ):
        await add(client, one.url)
        thread_id = await client.start_thread()
        assert await settled(client) == ("ready", None)
        pid, who = json.loads(await call(client, thread_id, "whoami"))
        assert who == "one"
        running_there = os.pidfd_open(pid)
        await add(client, two.url)
        with anyio.fail_after(WAIT_S):
            await anyio.wait_readable(running_there)
        os.close(running_there)
        assert json.loads(await call(client, thread_id, "whoami"))[1] == "two"
