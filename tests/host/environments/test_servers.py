"""MCP servers on other machines, through real exec servers."""

import asyncio
import json
import os
from pathlib import Path

import anyio
import pytest

from app_server.host.exec.client.process import RemoteProcess
from app_server.mcp.stdio import ServerProcess
from protocol.exec.processes import ProcessExitedParams
from tests.support.harness import WAIT_S, claim, serve, stdio_server
from tests.support.host.environments import (
    FAR,
    WHO_THERE,
    add,
    call,
    runtime,
    status,
    until,
)
from tests.support.host.exec_peer import exec_server
from tests.support.mcp_peers.calls import settled
from tests.support.model import calls
from tests.support.processes import EXECUTABLE


@claim("environment:mcp", "environment:info")
@pytest.mark.process
async def test_a_server_elsewhere_is_called_by_the_model_and_by_clients(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    config = stdio_server("raw", "big", "flood", environment_id=FAR, env_vars=WHO_THERE)
    async with (
        exec_server(cwd=there, environment={"WHO": "there", "SHELL": "/bin/zsh"}) as far,
        serve(here, config=config) as served,
        served.client() as client,
    ):
        await add(client, far.url)
        thread_id = await client.start_thread()
        assert await settled(client) == ("ready", None)
        assert await status(client) == {"status": "ready"}
        assert await client.call("environment/info", {"environmentId": "far"}) == {
            "shell": {"name": "zsh", "path": "/bin/zsh"},
            "cwd": there.as_uri(),
        }
        pid, who = json.loads(await call(client, thread_id, "whoami"))
        assert who == "there"
        assert os.readlink(f"/proc/{pid}/cwd") == str(there)
        huge = await call(client, thread_id, "huge")
        assert huge.startswith("Truncated tool output:")
        served.model.scripts = [calls({"namespace": "mcp__raw", "name": "structured"})]
        turn = await client.turn(thread_id, "go")
        assert turn["status"] == "completed"
        [output] = [i for i in served.model.requests[-1]["input"] if "output" in i]
        assert output["output"].endswith('\nOutput:\n{"b":1,"a":[2]}')


@pytest.mark.process
async def test_input_of_any_size_reaches_a_server_elsewhere(tmp_path: Path) -> None:
    async with (
        exec_server() as far,
        serve(tmp_path, config=stdio_server("raw", environment_id=FAR)) as served,
        served.client() as client,
    ):
        await add(client, far.url)
        thread_id = await client.start_thread()
        text = "x" * 5_000_000
        params = {"threadId": thread_id, "server": "raw", "tool": "meta", "_meta": {"long": text}}
        result = await client.call("mcpServer/tool/call", params)
        # What comes back is as long, and cut.
        assert result["content"][0]["text"].startswith("Truncated tool output:")


@claim("mcp:deaf")
@pytest.mark.process
async def test_a_server_elsewhere_that_stops_reading_holds_up_its_own_calls_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app_server.mcp.stdio.SEND_S", 0.1)
    config = stdio_server("raw", "deaf", environment_id=FAR)
    config += stdio_server("other", environment_id=FAR)
    async with (
        exec_server() as far,
        serve(tmp_path, config=config) as served,
        served.client() as client,
    ):
        await add(client, far.url)
        thread_id = await client.start_thread()
        params = {"threadId": thread_id, "server": "raw", "tool": "plain"}
        big = {**params, "arguments": {"text": "x" * 2_000_000}}
        error = await client.refusal("mcpServer/tool/call", big)
        said = "tool call failed for `raw/plain`: the server does not read its input"
        assert error.message == said
        result = await client.call("mcpServer/tool/call", {**params, "server": "other"})
        assert result["content"] == [{"type": "text", "text": "plain ran"}]


@claim("environment:start-failures")
@pytest.mark.process
async def test_starts_that_fail_elsewhere_say_why_as_they_do_here(tmp_path: Path) -> None:
    config = (
        stdio_server("dies", "die", environment_id=FAR)
        + '[mcp_servers.missing]\ncommand = "/no/such"\nenvironment_id = "far"\n'
        + '[mcp_servers.web]\nurl = "http://127.0.0.1:1/mcp"\nenvironment_id = "far"\n'
        + '[mcp_servers.odd]\nurl = "ftp://127.0.0.1/mcp"\nenvironment_id = "far"\n'
    )
    async with (
        exec_server() as far,
        serve(tmp_path, config=config) as served,
        served.client() as client,
    ):
        served.services.mcp_pool.retry_waits_s = (0, 0)
        await add(client, far.url)
        await until(client, "ready")
        thread_id = await client.start_thread()
        names = ("dies", "missing", "web", "odd")
        found = {name: await runtime(client, thread_id, name) for name in names}
        assert found == {
            "dies": (
                "failed",
                "MCP startup failed: the server ended too early: exit status 7: cannot go on",
            ),
            "missing": ("failed", "MCP startup failed: No such file or directory (os error 2)"),
            "web": (
                "failed",
                "MCP startup failed: cannot reach http://127.0.0.1:1/mcp: Connection refused",
            ),
            "odd": ("failed", "MCP startup failed: its URL is neither http nor https"),
        }


async def test_the_last_words_of_a_server_are_waited_for_when_its_output_ends_first() -> None:
    child = RemoteProcess(1, 1000, lambda *_: None, lambda _: None)
    process = ServerProcess(child)
    said: list[str] = []

    async def listen() -> None:
        said.append(await process.last_words())

    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(process.drain_stderr)
            child.feed("stdout", b"")
            assert [message async for message in process] == []
            tasks.start_soon(listen)
            await anyio.wait_all_tasks_blocked()
            child.feed("stderr", b"first\nlast\n")
            child.exited(ProcessExitedParams(process_id=1, exit_code=7, signal=None))
    assert said == ["exit status 7: last"]


@claim("environment:token")
@pytest.mark.process
async def test_a_wrong_token_is_not_let_in_and_the_right_one_is(tmp_path: Path) -> None:
    config = stdio_server("raw", environment_id=FAR)
    token = tmp_path / "token"
    token.write_text("right\n")
    async with (
        exec_server("--token-file", str(token)) as far,
        serve(tmp_path / "home", config=config) as served,
        served.client() as client,
    ):
        await add(client, far.url, authBearerToken="wrong")
        thread_id = await client.start_thread()
        step, error = await settled(client)
        assert step == "failed"
        assert error is not None
        assert error.endswith(f"`{far.url}`: HTTP status 401")
        await add(client, far.url, authBearerToken="right")
        await until(client, "ready")
        await client.call("config/mcpServer/reload")
        assert await settled(client) == ("ready", None)
        assert await call(client, thread_id, "plain") == "plain ran"


@claim("environment:reload")
@pytest.mark.process
async def test_a_server_of_an_unknown_environment_starts_with_a_reload_once_it_is_known(
    tmp_path: Path,
) -> None:
    config = stdio_server("raw", environment_id=FAR)
    async with (
        exec_server() as far,
        serve(tmp_path, config=config) as served,
        served.client() as client,
    ):
        thread_id = await client.start_thread()
        unknown = ("disabled", "unknown environment `far`")
        assert await runtime(client, thread_id) == unknown
        await add(client, far.url)
        await until(client, "ready")
        # Adding an environment starts nothing by itself.
        assert await runtime(client, thread_id) == unknown
        reload = await client.request("config/mcpServer/reload")
        steps = [
            (m["params"]["name"], m["params"]["status"])
            for m in [await client.receive() for _ in range(4)]
            if m.get("method") == "mcpServer/startupStatus/updated"
        ]
        assert reload
        assert steps == [("raw", "starting"), ("raw", "ready")]
        assert await call(client, thread_id, "plain") == "plain ran"


@pytest.mark.process
async def test_the_help_of_the_exec_server_teaches() -> None:
    process = await asyncio.create_subprocess_exec(
        str(EXECUTABLE), "exec-server", "--help", stdout=asyncio.subprocess.PIPE
    )
    said = (await process.communicate())[0].decode()
    assert process.returncode == 0
    for words in ("--token-file", "environment/add", "environment_id", "loopback", "SIGTERM"):
        assert words in said
