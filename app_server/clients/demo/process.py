"""A server as a child process with a home of its own."""

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

START_S = 300.0
STOP_S = 60.0
WAIT_S = 300.0
"""For each answer and event: a demo that fails on a busy machine shows nothing."""


class ServerProcess:
    """A running server."""

    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self._process = process
        self.url = url
        """Its `ws://` URL."""

    async def stop(self) -> int:
        """Send SIGTERM and return the exit status.

        Raises:
            TimeoutError: the server does not end.
        """
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGTERM)
        with anyio.move_on_after(STOP_S):
            return await self._process.wait()
        raise TimeoutError(f"the server did not end in {STOP_S:g} s")

    async def kill(self) -> None:
        """End the server as a crash would."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGKILL)
        await self._process.wait()


@asynccontextmanager
async def start_server(home: Path) -> AsyncIterator[ServerProcess]:
    """Start a server on a free port; leaving kills it if it still runs.

    Raises:
        TimeoutError: it did not become ready; RuntimeError: it ended instead.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "app_server.cli.serve", "--listen", "ws://127.0.0.1:0", "--home", str(home)),
        env={key: value for key, value in os.environ.items() if key != "OPENAI_API_KEY"},
        cwd=home,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        with anyio.move_on_after(START_S) as starting:
            url = await _read_url(process)
        if starting.cancelled_caught:
            raise TimeoutError(f"the server was not ready in {START_S:g} s")
        yield ServerProcess(process, url)
    finally:
        # Not process.kill(): that may reap the child behind asyncio's back.
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
            await process.wait()


async def _read_url(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    said = ""
    while line := (await process.stderr.readline()).decode():
        if found := re.search(r"listening on: (ws://\S+)", line):
            return found[1]
        said += line
    raise RuntimeError(f"the server ended before it was ready:\n{said}")
