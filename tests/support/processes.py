"""The server as a process of its own, and its command line."""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from websockets.asyncio.client import connect, unix_connect

from tests.support.harness import WAIT_S, WireClient, environment_without
from tests.support.wire.pipes import SocketPipe

EXECUTABLE = Path(sys.executable).parent / "app-server"
START_S = 60.0


@dataclass
class Running:
    """A server process."""

    process: asyncio.subprocess.Process
    urls: list[str]

    @asynccontextmanager
    async def client(self, url: str | None = None) -> AsyncIterator[WireClient]:
        """Connect and shake hands."""
        target = url or self.urls[0]
        options: dict[str, Any] = {"compression": None, "max_size": None, "open_timeout": WAIT_S}
        connection = (
            unix_connect(target.removeprefix("unix://"), **options)
            if target.startswith("unix://")
            else connect(target, proxy=None, **options)
        )
        async with connection as socket:
            client = WireClient(SocketPipe(socket))
            await client.initialize()
            yield client

    async def ended(self) -> int:
        """Wait for the end and return the exit status."""
        with anyio.fail_after(START_S):
            return await self.process.wait()


@asynccontextmanager
async def running(
    home: Path, *listen: str, options: Sequence[str] = (), **environment: str
) -> AsyncIterator[Running]:
    """Start the executable with options and variables of its own; leaving kills it."""
    addresses = listen or ("ws://127.0.0.1:0",)
    arguments = [word for address in addresses for word in ("--listen", address)]
    process = await asyncio.create_subprocess_exec(
        str(EXECUTABLE),
        *("--home", str(home), *arguments, *options),
        env=environment_without("CODEX_HOME", "APP_SERVER_HOME") | environment,
        cwd=home,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        urls: list[str] = []
        with anyio.fail_after(START_S):
            while len(urls) < len(addresses):
                line = (await process.stderr.readline()).decode()
                found = re.fullmatch(r"listening on: (\S+)\n", line)
                assert found, line + (await process.stderr.read()).decode()
                urls.append(found[1])
        yield Running(process, urls)
    finally:
        # Not process.kill(): that may reap the child behind asyncio's back.
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        await process.communicate()


def run_cli(
    *arguments: str, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the executable to its end."""
    return subprocess.run(
        [str(EXECUTABLE), *arguments],
        cwd=cwd,
        env=environment_without("OPENAI_API_KEY") | environment,
        capture_output=True,
        text=True,
        timeout=START_S,
        stdin=subprocess.DEVNULL,
        check=False,
    )
