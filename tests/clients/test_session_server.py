"""coder: the server of one session, found or started, without the launcher and its agent."""

import logging
import os
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from app_server.clients.coder import session
from app_server.clients.coder.plan import Plan, url_of
from app_server.clients.coder.session import NoServer, session_server
from app_server.peer.connection import identify
from tests.support.harness import WAIT_S, serve
from tests.support.receiver.peer import FakeAppServer

pytestmark = pytest.mark.process

READY = "import sys; print('listening on: x', file=sys.stderr, flush=True); sys.stdin.read()"


def command_of(script: str = READY) -> Sequence[str]:
    """Make a command to start instead of a server; its stdin never ends."""
    return sys.executable, "-c", f"import os; r, w = os.pipe(); os.dup2(r, 0); {script}"


def plan_at(home: Path, port: int, **more: Any) -> Plan:
    values: dict[str, Any] = {"agent": "codex", "mode": "auto", "agent_words": [], **more}
    return Plan(home=home, folder=home, first_port=port, **values)


def server_at(home: Path, port: int, **more: Any) -> AbstractAsyncContextManager[str]:
    return session_server(plan_at(home, port, **{"server": command_of(), **more}), os.environ)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


@asynccontextmanager
async def occupied(tmp_path: Path, who: str) -> AsyncIterator[str]:
    """Put somebody at a port; gives its URL."""
    match who:
        case "somebody silent":
            with socket.create_server(("127.0.0.1", 0)) as listener:
                yield url_of(listener.getsockname()[1])
        case "another make":
            async with FakeAppServer(tmp_path / "home").listen() as fake:
                yield fake.url
        case _:
            home = tmp_path / ("home" if who == "ours" else "other")
            async with serve(home) as served:
                yield served.urls[0]


@pytest.mark.parametrize("who", ["somebody silent", "another make", "another home", "ours"])
async def test_only_a_server_of_ours_with_the_same_home_is_reused(tmp_path: Path, who: str) -> None:
    quick = {"probe_s": 0.05} if who == "somebody silent" else {}
    home = tmp_path / "home"
    async with occupied(tmp_path, who) as url:
        async with server_at(home, int(url.rpartition(":")[2]), **quick) as chosen:
            assert (chosen == url) is (who == "ours")
        if who == "ours":
            assert (await identify(url, "test", timeout_s=WAIT_S))["codexHome"] == str(home)


async def test_two_sessions_have_a_server_each(tmp_path: Path) -> None:
    port = free_port()
    async with server_at(tmp_path, port) as first, server_at(tmp_path, port) as second:
        assert first != second


@pytest.mark.parametrize("mode", ["auto", "local"])
async def test_without_a_port_auto_goes_on_and_local_does_not(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    mode: str,
) -> None:
    monkeypatch.setenv("PRISM_CODEX_APP_SERVER_URL", "ws://127.0.0.1:1")
    agent = tmp_path / "agent"
    names = "PRISM_AGENT_SURFACE PRISM_CODEX_APP_SERVER_MODE PRISM_CODEX_APP_SERVER_URL"
    agent.write_text(f'#!/bin/sh\necho "$*" >"$2/words"\nprintenv {names} >"$2/given"\nexit 7\n')
    agent.chmod(0o755)
    # The last port is a range of one; any number of runs on this machine can hold it like this.
    with socket.create_server(("127.0.0.1", 65535), reuse_port=True):
        chosen = plan_at(tmp_path, 65535, agent=str(agent), mode=mode, probe_s=0.05)
        why = "no port from 65535 to 65535 can be used"
        if mode == "local":
            with pytest.raises(NoServer, match=why):
                await session.run_session(chosen)
            assert not (tmp_path / "given").exists()
            return
        assert await session.run_session(chosen) == 7
    assert f"no server, so signals wait for tool results: {why}" in caplog.messages
    assert (tmp_path / "words").read_text() == f"--cd {tmp_path}\n"
    assert (tmp_path / "given").read_text().splitlines() == [str(agent), "auto"]


async def test_a_line_of_the_servers_log_may_be_of_any_length(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    long = f"import sys; sys.stderr.write('x' * 300_000 + '\\n'); {READY}"
    caplog.set_level(logging.INFO, "app_server")
    async with server_at(tmp_path, free_port(), server=command_of(long)):
        pass
    lines = {record.getMessage() for record in caplog.records}
    assert {"server: (a line that is too long)", "server: listening on: x"} <= lines
