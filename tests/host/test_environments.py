"""environment/*: MCP servers on other machines, through real exec servers; children that end."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as serve_sockets

from app_server.host.exec.client import environment as remote_environment
from app_server.host.exec.client.address import parse_exec_address
from app_server.host.exec.client.process import RemoteProcess
from app_server.mcp.stdio import ServerProcess
from protocol.exec_server import ProcessExitedParams
from tests.support.harness import WAIT_S, WireClient, calls, claim, serve, stdio_server
from tests.support.host.exec_conversations import listening
from tests.support.host.exec_peer import EXECUTABLE, STUBBORN, Holders, exec_server
from tests.support.mcp_peers.calls import settled
from tests.support.paths import MCP_PEER
from tests.support.processes import running

FAR = '"far"'
WHO_THERE = '[{ name = "WHO", source = "remote" }]'
NOWHERE = "ws://127.0.0.1:1"


async def add(client: WireClient, url: str, **more: Any) -> None:
    params = {"environmentId": "far", "execServerUrl": url, **more}
    assert await client.call("environment/add", params) == {}


async def status(client: WireClient, environment_id: str = "far") -> Any:
    return await client.call("environment/status", {"environmentId": environment_id})


async def until(client: WireClient, wanted: str) -> Any:
    """Ask until the environment has this status."""
    with anyio.fail_after(WAIT_S):
        while (found := await status(client))["status"] != wanted:
            await anyio.lowlevel.checkpoint()
    return found


async def call(client: WireClient, thread_id: str, tool: str, **arguments: Any) -> Any:
    params = {"threadId": thread_id, "server": "raw", "tool": tool, "arguments": arguments}
    return (await client.call("mcpServer/tool/call", params))["content"][0]["text"]


async def runtime(client: WireClient, thread_id: str, name: str = "raw") -> tuple[str, Any]:
    params = {"threadId": thread_id, "serverName": name, "detail": "toolsAndAuthOnly"}
    [entry] = (await client.call("mcpServerStatus/list", params))["data"]
    return entry["runtimeStatus"], entry["toolsError"]


# The table.


@claim("environment:local")
async def test_this_machine_is_an_environment_that_is_always_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHELL", "/bin/zsh")
    async with serve(tmp_path) as served, served.client() as client:
        assert await status(client, "local") == {"status": "ready"}
        assert await client.call("environment/info", {"environmentId": "local"}) == {
            "shell": {"name": "zsh", "path": "/bin/zsh"},
            "cwd": Path.cwd().as_uri(),
        }
        params = {"environmentId": "local", "execServerUrl": NOWHERE}
        error = await client.refusal("environment/add", params)
        assert (error.code, error.message, error.data) == (
            -32600,
            "exec-server protocol error: environment id `local` is reserved for EnvironmentManager",
            {"code": "environmentRefused", "environmentId": "local"},
        )


@claim("environment:unknown")
async def test_an_environment_that_nobody_added_is_unknown(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        text = "unknown environment id `far`"
        assert await status(client) == {"status": "unknown", "error": text}
        error = await client.refusal("environment/info", {"environmentId": "far"})
        assert (error.code, error.message, error.data) == (
            -32600,
            text,
            {"code": "unknownEnvironment", "environmentId": "far"},
        )


@claim("environment:add-refused")
@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"environmentId": ""}, "environment id cannot be empty"),
        ({"environmentId": "x" * 1025}, "environment id must have at most 1024 characters"),
        ({"execServerUrl": "none"}, "remote environment cannot use disabled exec-server url"),
        (
            {"execServerUrl": "ws://192.0.2.1:1", "authBearerToken": "secret"},
            "exec-server WebSocket headers require wss:// or a loopback destination",
        ),
        ({"skills": {"required": ["a"]}}, "skills of environments are not offered here"),
    ],
)
async def test_what_cannot_be_added_is_refused_and_changes_nothing(
    tmp_path: Path, params: Any, reason: str
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        whole = {"environmentId": "far", "execServerUrl": NOWHERE, **params}
        error = await client.refusal("environment/add", whole)
        assert (error.code, error.message) == (-32600, f"exec-server protocol error: {reason}")
        assert (await status(client))["status"] == "unknown"


@claim("environment:bounds")
async def test_environments_are_bounded_in_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app_server.host.environments.MAX_ENVIRONMENTS", 2)
    async with serve(tmp_path) as served, served.client() as client:
        for name in ("a", "b", "a"):
            await add(client, NOWHERE, environmentId=name)
        params = {"environmentId": "c", "execServerUrl": NOWHERE}
        error = await client.refusal("environment/add", params)
        said = "exec-server protocol error: there are 2 environments already"
        assert error.message == said


@claim("environment:unavailable")
async def test_an_environment_out_of_reach_says_why(tmp_path: Path) -> None:
    config = stdio_server("raw", environment_id=FAR)
    async with serve(tmp_path, config=config) as served, served.client() as client:
        await add(client, NOWHERE)
        why = (
            "exec-server connection attempt failed: failed to connect to exec-server websocket "
            f"`{NOWHERE}`: connection refused"
        )
        assert await until(client, "disconnected") == {"status": "disconnected", "error": why}
        error = await client.refusal("environment/info", {"environmentId": "far"})
        assert (error.code, error.message, error.data["code"]) == (
            -32603,
            f"failed to get info for environment `far`: {why}",
            "environmentUnavailable",
        )
        await client.start_thread()
        failed = f"MCP client for `raw` failed to start: MCP startup failed: {why}"
        assert await settled(client) == ("failed", failed)


@claim("environment:headers")
async def test_token_and_request_id_are_sent_at_every_connect(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "app_server")
    seen: list[tuple[str | None, str | None]] = []

    async def play(socket: ServerConnection) -> None:
        assert socket.request is not None
        headers = socket.request.headers
        seen.append((headers.get("Authorization"), headers.get("X-Request-ID")))

    async with (
        serve_sockets(play, "127.0.0.1", 0) as server,
        serve(tmp_path) as served,
        served.client() as client,
    ):
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await add(client, url, authBearerToken="secret", websocketRequestId="r-1")
        error = (await until(client, "disconnected"))["error"]
        refusal = await client.refusal("environment/info", {"environmentId": "far"})
        assert seen == [("Bearer secret", "r-1")] * 2
        assert "secret" not in error + refusal.message + caplog.text


# A server elsewhere.


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
            with pytest.raises(anyio.EndOfStream):
                await process.receive()
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


# Its end.


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


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again soon."""
    monkeypatch.setattr("app_server.mcp.servers.server.RETRY_WAITS_S", (0, 0))
    monkeypatch.setattr(remote_environment, "FIRST_RETRY_S", 0.01)
    monkeypatch.setattr(remote_environment, "MAX_RETRY_S", 0.05)


@claim("environment:back")
@pytest.mark.process
@pytest.mark.usefixtures("impatient")
@pytest.mark.slow
async def test_a_server_that_failed_while_its_exec_server_was_away_starts_when_that_is_back(
    tmp_path: Path,
) -> None:
    config = stdio_server("raw", environment_id=FAR)
    async with serve(tmp_path, config=config) as served, served.client() as client:
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
@pytest.mark.usefixtures("impatient")
async def test_a_server_that_waits_starts_in_the_environment_that_takes_the_place(
    tmp_path: Path,
) -> None:
    config = stdio_server("raw", environment_id=FAR)
    async with (
        exec_server() as far,
        serve(tmp_path, config=config) as served,
        served.client() as client,
    ):
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
    ends = [min(2.0**n, remote_environment.MAX_RETRY_S) for n in range(len(waits))]
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


@pytest.mark.process
async def test_the_help_of_the_exec_server_teaches() -> None:
    process = await asyncio.create_subprocess_exec(
        str(EXECUTABLE), "exec-server", "--help", stdout=asyncio.subprocess.PIPE
    )
    said = (await process.communicate())[0].decode()
    assert process.returncode == 0
    for words in ("--token-file", "environment/add", "environment_id", "loopback", "SIGTERM"):
        assert words in said
