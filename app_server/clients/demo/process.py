"""A server as a child process with a home of its own, and programs that run beside it."""

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from app_server.clients.demo.transcript import Transcript
from app_server.config.store_url import STORE_VARIABLE
from app_server.peer.connection import Client, open_client
from protocol.model import Json

START_S = 300.0
STOP_S = 60.0
RUN_S = 300.0
"""For a program that runs to its end."""
WAIT_S = 300.0
"""For each answer and event: a demo that fails on a busy machine shows nothing."""


class ServerProcess:
    """A running server."""

    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self._process = process
        self.url = url
        """Its `ws://` URL."""

    def connect(self, **capabilities: Json) -> AbstractAsyncContextManager[Client]:
        """Connect to the server and shake hands, with its experimental members."""
        return open_client(self.url, "demo", wait_s=WAIT_S, experimentalApi=True, **capabilities)

    async def stop(self) -> int:
        """Send SIGTERM and return the exit status.

        Raises:
            TimeoutError: the server does not end.
        """
        self._send(signal.SIGTERM)
        with anyio.move_on_after(STOP_S):
            return await self._process.wait()
        raise TimeoutError(f"the server did not end in {STOP_S:g} s")

    async def kill(self) -> None:
        """End the server as a crash would; harmless where it has ended."""
        # Not process.kill(): that may reap the child behind asyncio's back.
        if self._process.returncode is None:
            self._send(signal.SIGKILL)
            await self._process.wait()

    def _send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, number)


@asynccontextmanager
async def start_server(home: Path) -> AsyncIterator[ServerProcess]:
    """Start a server on a free port; leaving kills it if it still runs.

    Raises:
        TimeoutError: it did not become ready; RuntimeError: it ended instead.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "app_server.cli.serve", "--listen", "ws://127.0.0.1:0", "--home", str(home)),
        env=environment(),
        cwd=home,
        stderr=asyncio.subprocess.PIPE,
    )
    server = ServerProcess(process, "")
    try:
        with anyio.move_on_after(START_S) as starting:
            server.url = await _read_url(process)
        if starting.cancelled_caught:
            raise TimeoutError(f"the server was not ready in {START_S:g} s")
        yield server
    finally:
        await server.kill()


@asynccontextmanager
async def shown_server(
    transcript: Transcript, home: Path, title: str, besides: str = ""
) -> AsyncIterator[ServerProcess]:
    """Start a server as the first step of a demo, and stop it as the last one.

    `title` is that of the first step, `besides` what is said behind the address of the server.
    """
    async with contextlib.AsyncExitStack() as stack:
        with transcript.step(title):
            server = await stack.enter_async_context(start_server(home))
            transcript.say("server", f"listens on {server.url}{besides}")
        yield server
        await stop_server(transcript, server)


async def stop_server(transcript: Transcript, server: ServerProcess) -> None:
    """Stop a server as a step of a demo."""
    with transcript.step("Stop the server with SIGTERM"):
        transcript.check("it ends by itself", await server.stop() == 0)


def environment() -> dict[str, str]:
    """Return the variables of a server: without a key of the user's, or another database."""
    left_out = ("OPENAI_API_KEY", STORE_VARIABLE)
    return {
        key: value
        for key, value in os.environ.items()
        if key not in left_out and not key.startswith("PG")
    }


async def run_to_end(*command: str, wait_s: float = RUN_S, **options: Any) -> str:
    """Run a program to its end and return what it said; it is killed if it is not waited for.

    `options` are those of a subprocess.

    Raises:
        OSError: it cannot be started.
        RuntimeError: its exit status is not 0; the text has what it said.
        TimeoutError: it did not end within `wait_s`.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
        **options,
    )
    name = Path(command[0]).name
    try:
        async with asyncio.timeout(wait_s):
            said = (await process.communicate())[0].decode(errors="replace").strip()
    except TimeoutError as exc:
        raise TimeoutError(f"{name} did not end in {wait_s:g} s") from exc
    finally:
        if process.returncode is None:
            # With what it has started.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if process.returncode != 0:
        raise RuntimeError(f"{name} ended with status {process.returncode}: {said}")
    return said


async def _read_url(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    said = ""
    while line := (await process.stderr.readline()).decode():
        if found := re.search(r"listening on: (ws://\S+)", line):
            return found[1]
        said += line
    raise RuntimeError(f"the server ended before it was ready:\n{said}")
