"""The launcher: real processes with an agent that is not Codex."""

import asyncio
import fcntl
import json
import os
import pty
import re
import shlex
import signal as signals
import socket
import termios
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from app_server.clients.coder.install_cli import ENV_VARS
from app_server.clients.receiver.agent.environment import URL_VARIABLE
from app_server.peer.connection import NoAppServer, identify
from tests.support.clients.coder import CODER, environment, read_given, run_coder
from tests.support.harness import WAIT_S
from tests.support.receiver.peer import FakeAppServer, signal
from tests.support.receiver.processes import (
    EXECUTABLE,
    START_S,
    clean_environment,
    post,
    read_url,
    router_process,
    server_process,
    states,
    times_in_log,
    until,
)

pytestmark = pytest.mark.process


@contextmanager
def free_ports() -> Iterator[int]:
    """Give a port that is free, with free ones behind it."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    yield port if port < 65000 else port - 5000


@contextmanager
def stranger() -> Iterator[int]:
    """Occupy a port with somebody who hangs up on everybody."""
    with closing(socket.create_server(("127.0.0.1", 0), backlog=64)) as listener:
        # Who only listens says nothing; a probe gives up on it.
        yield listener.getsockname()[1]


@dataclass
class Running:
    """A launcher and its agent."""

    process: asyncio.subprocess.Process
    given: Any

    @property
    def url(self) -> str:
        return str(self.given["variables"]["PRISM_CODEX_APP_SERVER_URL"])

    async def ended(self) -> int:
        with anyio.fail_after(2 * START_S):
            return await self.process.wait()


@asynccontextmanager
async def running(tmp_path: Path, variables: dict[str, str], *words: str) -> AsyncIterator[Running]:
    """Run the launcher until its agent is there."""
    (tmp_path / "given.json").unlink(missing_ok=True)
    process = await asyncio.create_subprocess_exec(
        str(CODER),
        *words,
        env=variables,
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    made = Running(process, None)
    try:
        await until((tmp_path / "given.json").exists)
        made.given = read_given(tmp_path)
        yield made
    finally:
        pids = [process.pid] if process.returncode is None else []
        pids += [made.given["pid"]] if made.given else []
        for pid in pids:
            try:
                os.kill(pid, signals.SIGKILL)
            except ProcessLookupError:
                continue
        with anyio.CancelScope(shield=True):
            await process.wait()


async def until_nobody_listens(url: str) -> None:
    """Wait until connections to a URL are refused."""
    with anyio.fail_after(START_S):
        while True:
            try:
                await identify(url, "test", timeout_s=1.0)
            except ConnectionRefusedError:
                return
            except NoAppServer:
                continue


# Sessions.


def test_the_agent_is_given_a_server_that_ends_with_it(tmp_path: Path) -> None:
    with free_ports() as port:
        result = run_coder(
            environment(tmp_path, "exit 3"), "-codex-app-server-port", str(port), cwd=tmp_path
        )

    given = read_given(tmp_path)
    url = given["variables"]["PRISM_CODEX_APP_SERVER_URL"]
    assert (result.returncode, result.stdout, result.stderr) == (3, "", "")
    assert re.fullmatch(r"ws://127\.0\.0\.1:\d+", url)
    assert given["words"] == ["--remote", url, "--cd", str(tmp_path)]
    assert given["home"] == str(tmp_path / "home")
    assert given["variables"]["PRISM_AGENT_SURFACE"] == "codex"
    assert given["variables"]["PRISM_CODEX_APP_SERVER_MODE"] == "auto"
    with pytest.raises(ConnectionRefusedError):
        anyio.run(lambda: identify(url, "test", timeout_s=WAIT_S))


@pytest.mark.parametrize(
    ("number", "status"),
    [(signals.SIGTERM, 50 + signals.SIGTERM), (signals.SIGINT, 50 + signals.SIGINT)],
)
async def test_a_signal_goes_to_the_agent_and_its_status_comes_back(
    tmp_path: Path, number: int, status: int
) -> None:
    with free_ports() as port:
        variables = environment(tmp_path, "wait")
        async with running(tmp_path, variables, "-codex-app-server-port", str(port)) as session:
            os.kill(session.process.pid, number)

            assert await session.ended() == status
            await until_nobody_listens(session.url)


async def test_ctrl_c_reaches_the_agent_once(tmp_path: Path) -> None:
    terminal, inside = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        str(CODER),
        *("-codex-app-server", "off"),
        env=environment(tmp_path, "count"),
        stdin=inside,
        start_new_session=True,
        preexec_fn=partial(fcntl.ioctl, 0, termios.TIOCSCTTY, 0),
    )
    try:
        await until(lambda: (tmp_path / "given.json").exists())
        os.write(terminal, b"\x03")
        await until(lambda: read_given(tmp_path)["count"] > 0)
        os.kill(process.pid, signals.SIGTERM)
        with anyio.fail_after(START_S):
            assert await process.wait() == 1
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signals.SIGKILL)
        await process.wait()
        os.close(inside)
        os.close(terminal)


async def test_an_agent_that_is_killed_takes_its_server_along(tmp_path: Path) -> None:
    with free_ports() as port:
        variables = environment(tmp_path, "wait")
        async with running(tmp_path, variables, "-codex-app-server-port", str(port)) as session:
            os.kill(session.given["pid"], signals.SIGKILL)

            assert await session.ended() == 128 + signals.SIGKILL
            await until_nobody_listens(session.url)


async def test_a_launcher_that_is_killed_leaves_no_server(tmp_path: Path) -> None:
    with free_ports() as port:
        variables = environment(tmp_path, "wait")
        async with running(tmp_path, variables, "-codex-app-server-port", str(port)) as session:
            os.kill(session.process.pid, signals.SIGKILL)

            await until_nobody_listens(session.url)


@pytest.mark.slow
async def test_a_port_of_a_stranger_is_passed_over(tmp_path: Path) -> None:
    with stranger() as port:
        variables = environment(tmp_path, "wait")
        async with running(tmp_path, variables, "-codex-app-server-port", str(port)) as session:
            assert session.url != f"ws://127.0.0.1:{port}"
            assert session.given["home"] == str(tmp_path / "home")


@pytest.mark.slow
async def test_a_server_of_another_home_or_another_make_is_a_stranger(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    async with (
        FakeAppServer(tmp_path / "home").listen() as fake,
        server_process(other) as (server, _),
    ):
        for url in (fake.url, server):
            variables = environment(tmp_path, "wait")
            port = url.rpartition(":")[2]
            async with running(tmp_path, variables, "-codex-app-server-port", port) as session:
                assert session.url != url


async def test_our_server_with_the_same_home_is_reused_and_left_running(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    async with server_process(home) as (url, _):
        result = await anyio.to_thread.run_sync(
            run_coder, environment(tmp_path), "-codex-app-server-port", url.rpartition(":")[2]
        )

        assert (result.returncode, read_given(tmp_path)["variables"][URL_VARIABLE]) == (0, url)
        assert (await identify(url, "test", timeout_s=WAIT_S))["codexHome"] == str(home)


@pytest.mark.slow
async def test_two_sessions_have_a_server_each(tmp_path: Path) -> None:
    with free_ports() as port:
        words = ("-codex-app-server-port", str(port))
        async with running(tmp_path, environment(tmp_path, "wait"), *words) as first:
            (tmp_path / "given.json").rename(tmp_path / "first.json")
            async with running(tmp_path, environment(tmp_path, "wait"), *words) as second:
                assert first.url != second.url
                os.kill(first.process.pid, signals.SIGTERM)
                await first.ended()
                assert (await identify(second.url, "test", timeout_s=WAIT_S))["codexHome"]


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "status"), [("auto", 0), ("local", 2)])
def test_without_a_port_auto_goes_on_and_local_does_not(
    tmp_path: Path, mode: str, status: int
) -> None:
    # The last port is a range of one; any number of runs on this machine can hold it like this.
    with closing(socket.create_server(("127.0.0.1", 65535), reuse_port=True)):
        result = run_coder(
            environment(tmp_path, PRISM_CODEX_APP_SERVER_URL="ws://127.0.0.1:1"),
            *("-codex-app-server", mode, "-codex-app-server-port", "65535"),
            cwd=tmp_path,
        )

    assert result.returncode == status
    why = "no port from 65535 to 65535 can be used"
    log = (tmp_path / "home" / "coder" / "coder.log").read_text()
    if mode == "local":
        assert result.stderr == f"coder: {why}\n"
        assert not (tmp_path / "given.json").exists()
        return
    assert result.stderr == ""
    assert f"no server, so signals wait for tool results: {why}" in log
    given = read_given(tmp_path)
    assert given["words"] == ["--cd", str(tmp_path)]
    assert "PRISM_CODEX_APP_SERVER_URL" not in given["variables"]
    assert given["variables"]["PRISM_CODEX_APP_SERVER_MODE"] == "auto"


async def test_a_given_server_is_used_if_it_answers_as_one(tmp_path: Path) -> None:
    async with FakeAppServer(tmp_path).listen() as fake:
        words = ("-codex-app-server-url", fake.url, "-codex-app-server", "local")
        good = await anyio.to_thread.run_sync(run_coder, environment(tmp_path), *words)
    bad = await anyio.to_thread.run_sync(run_coder, environment(tmp_path), *words)

    assert (good.returncode, read_given(tmp_path)["variables"][URL_VARIABLE]) == (0, fake.url)
    assert (bad.returncode, bad.stderr) == (2, f"coder: no app-server answers at {fake.url}\n")


def test_an_agent_that_is_not_there_is_reported_before_anything_is_started(tmp_path: Path) -> None:
    variables = environment(tmp_path) | {"PATH": "/nowhere"}

    result = run_coder(variables)

    assert (result.returncode, result.stderr) == (2, "coder: codex was not found on PATH\n")
    assert not (tmp_path / "home").exists()


async def test_a_given_server_of_another_make_or_home_is_said_to_need_its_url(
    tmp_path: Path,
) -> None:
    home, other = tmp_path / "home", tmp_path / "other"
    home.mkdir()
    other.mkdir()
    async with (
        FakeAppServer(tmp_path).listen() as fake,
        server_process(other) as (stranger_url, _),
        server_process(home) as (ours, _),
    ):
        said = {}
        for url in (fake.url, stranger_url, ours):
            words = ("-codex-app-server-url", url)
            ended = await anyio.to_thread.run_sync(run_coder, environment(tmp_path), *words)
            assert (ended.returncode, ended.stdout) == (0, "")
            said[url] = ended.stderr
    for url in (fake.url, stranger_url):
        assert said[url] == (
            f"coder: signals reach the thread if the server at {url} was started with "
            f"{URL_VARIABLE}={url} in its environment; else they wait for tool results\n"
        )
    assert said[ours] == ""


def receiver_of(home: Path, router: str, *, through_shell: bool = False) -> None:
    """Have the threads of a server start a receiver."""
    words = [str(EXECUTABLE), "receiver", "--router-url", router, "--session", "Texi"]
    if through_shell:
        words = ["/bin/sh", "-c", f"{shlex.join(words)}; true"]
    (home / "config.toml").write_text(
        f"[mcp_servers.prism]\ncommand = {json.dumps(words[0])}\n"
        f"args = {json.dumps(words[1:])}\nenv_vars = {json.dumps(list(ENV_VARS))}\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize("how", ["plain", "token", "shell"])
async def test_a_signal_reaches_a_thread_without_a_configured_server_url(
    tmp_path: Path, how: str
) -> None:
    home, folder, token = tmp_path / "home", tmp_path / "work", tmp_path / "token"
    home.mkdir()
    folder.mkdir()
    listen = ["--listen", "ws://127.0.0.1:0"]
    words = [] if how != "token" else ["-codex-app-server-token-file", str(token)]
    guard = [] if how != "token" else ["--token-file", str(token)]
    async with router_process(tmp_path) as (router, _):
        receiver_of(home, router, through_shell=how == "shell")
        async with plain_server(home, *listen, *guard) as url:
            variables = environment(tmp_path, f"thread {folder}")
            words += ["-cd", str(folder), "-codex-app-server-url", url]
            async with running(tmp_path, variables, *words) as session:
                await post(router, signal("s1"))
                ledger = home / "receiver" / "Texi.sqlite3"
                await until(lambda: states(ledger) == {"s1": "injected"})
                assert times_in_log(session.given["thread"]["path"], "s1") == 1
                os.kill(session.process.pid, signals.SIGTERM)
                await session.ended()


@asynccontextmanager
async def plain_server(home: Path, *options: str) -> AsyncIterator[str]:
    """Start a server as a user does, with nothing in its environment; gives its URL."""
    process = await asyncio.create_subprocess_exec(
        str(EXECUTABLE),
        *("--home", str(home), *options),
        env=clean_environment(),
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield await read_url(process)
    finally:
        process.terminate()
        with anyio.CancelScope(shield=True), anyio.fail_after(START_S):
            await process.wait()


@pytest.mark.slow
async def test_a_signal_reaches_the_thread_of_an_agent_that_was_launched_with_a_bridge(
    tmp_path: Path,
) -> None:
    home, folder = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    folder.mkdir()
    async with router_process(tmp_path) as (router, _):
        receiver_of(home, router)
        variables = environment(tmp_path, f"thread {folder}")
        with free_ports() as port:
            words = ("-cd", str(folder), "-codex-app-server-port", str(port))
            async with running(tmp_path, variables, *words) as session:
                await post(router, signal("s1"))
                ledger = home / "receiver" / "Texi.sqlite3"
                await until(lambda: states(ledger) == {"s1": "injected"})
                log = session.given["thread"]["path"]

                assert times_in_log(log, "s1") == 1
                os.kill(session.process.pid, signals.SIGTERM)
                await session.ended()
