"""The demos wait for the MCP servers that they use, and say so when one does not come."""

import asyncio
import errno
import io
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import anyio
import pytest

from app_server.clients.demo import signals_scenario, thread
from app_server.clients.demo.thread import DemoThread
from app_server.clients.demo.transcript import CheckFailed, Transcript, run_demo
from app_server.peer.connection import Client, open_client
from tests.support.harness import serve
from tests.support.paths import MCP_PEER

SLOW = '#!/bin/sh\nsleep 2\nexec "{python}" "$@"\n'


@pytest.mark.process
@pytest.mark.slow
async def test_the_demo_of_signals_waits_for_a_server_that_takes_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "python"
    slow.write_text(SLOW.format(python=sys.executable))
    slow.chmod(0o700)
    monkeypatch.setattr(thread, "sys", SimpleNamespace(executable=str(slow)))
    assert await run_demo(signals_scenario.run) == 0


class Full(io.StringIO):
    """A stream on a full disk."""

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("stream", [None, Full()])
def test_a_demo_that_cannot_be_shown_checks_all_the_same(stream: io.StringIO | None) -> None:
    transcript = Transcript(stream)
    with transcript.step("A step"):
        transcript.say("me", "hello")
        transcript.check("it holds", holds=True)
    transcript.close("done")
    assert transcript.checks == 1


@pytest.fixture
def ignored(request: pytest.FixtureRequest) -> Iterator[signal.Signals]:
    """Ignore a signal, as whoever starts a demo in the background does."""
    number: signal.Signals = request.param
    before = signal.signal(number, signal.SIG_IGN)
    yield number
    signal.signal(number, before)


@pytest.mark.parametrize("ignored", [signal.SIGINT, signal.SIGUSR1], indirect=True)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_ends_a_demo_also_where_interrupts_are_ignored(
    ignored: signal.Signals, number: signal.Signals
) -> None:
    cleaned_up = []

    async def scenario(transcript: Transcript, folder: Path) -> None:
        try:
            os.kill(os.getpid(), number)
            await asyncio.Event().wait()
        finally:
            # A second one does not end the cleaning up.
            os.kill(os.getpid(), number)
            await asyncio.to_thread(folder.joinpath("cleaned up").touch)
            cleaned_up.append(folder)

    async with asyncio.timeout(60):
        assert await run_demo(scenario) == 130
    (folder,) = cleaned_up
    assert not folder.exists()


@pytest.mark.parametrize("ignored", [signal.SIGHUP], indirect=True)
async def test_a_demo_goes_on_when_a_closed_terminal_is_ignored(ignored: signal.Signals) -> None:
    async def scenario(transcript: Transcript, folder: Path) -> None:
        os.kill(os.getpid(), ignored)
        await asyncio.to_thread(folder.joinpath("went on").touch)

    assert await run_demo(scenario) == 0


async def test_check_that_fails_within_a_task_group_ends_a_demo_with_status_1() -> None:
    async def scenario(transcript: Transcript, folder: Path) -> None:
        async with anyio.create_task_group():
            transcript.check("it is green", False)

    assert await run_demo(scenario) == 1


async def started(client: Client) -> str:
    thread_id: str = (await client.call("thread/start", {}))["thread"]["id"]
    return thread_id


async def test_a_server_that_does_not_start_is_named(tmp_path: Path) -> None:
    servers = "".join(
        f"[mcp_servers.{name}]\ncommand = '{sys.executable}'\nargs = ['{MCP_PEER}', '{name}']\n"
        for name in ("hang", "die")
    )
    async with (
        serve(tmp_path, config=servers) as served,
        open_client(served.urls[0], "demo", experimentalApi=True) as client,
    ):
        thread_id = await started(client)
        used = DemoThread(Transcript(), client, thread_id)
        with pytest.raises(CheckFailed, match=r"^MCP server die did not start: .*exit status 7"):
            await used.wait_for_servers({"die"})
        used.servers_s = 0.0
        text = f"^MCP servers of thread {thread_id} were not ready in 0 s: hang$"
        with pytest.raises(CheckFailed, match=text):
            await used.wait_for_servers({"hang"})
        with pytest.raises(TimeoutError, match=r"^no event x that was waited for in 0 s$"):
            await client.wait_for("x", lambda params: True, timeout_s=0.0)
