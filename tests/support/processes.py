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

from tests.support.forks import ForkedProcess, fork_program
from tests.support.harness import WAIT_S, WireClient, environment_without
from tests.support.wire.pipes import socket_pipe

EXECUTABLE = Path(sys.executable).parent / "app-server"
START_S = 180.0
RUN_S = 240.0
"""For a program to its end: the demos take a minute on a busy machine."""
HOMES = ("CODEX_HOME", "APP_SERVER_HOME")


@dataclass
class Running:
    """A server process."""

    process: ForkedProcess | asyncio.subprocess.Process
    urls: list[str]

    @asynccontextmanager
    async def client(self, url: str | None = None, **handshake: Any) -> AsyncIterator[WireClient]:
        """Connect and shake hands."""
        async with socket_pipe(url or self.urls[0], WAIT_S) as pipe:
            client = WireClient(pipe)
            await client.initialize(**handshake)
            yield client

    async def ended(self) -> int:
        """Wait for the end and return the exit status."""
        with anyio.fail_after(START_S):
            return await self.process.wait()


@asynccontextmanager
async def running(
    home: Path, *listen: str, options: Sequence[str] = (), **environment: str
) -> AsyncIterator[Running]:
    """Run a server, forked, with options and variables of its own; leaving kills it."""
    process = await fork_program(
        "app_server.cli.entry",
        *_words(home, listen, options),
        environment=environment_without(*HOMES) | environment,
        folder=home,
    )
    async with _watched(process, len(listen) or 1) as server:
        yield server


@asynccontextmanager
async def started(
    home: Path,
    *listen: str,
    options: Sequence[str] = (),
    before: Sequence[str] = (),
    **environment: str,
) -> AsyncIterator[Running]:
    """Start the executable as `running` does, for tests of what it is to start one.

    `before` is the command line of a program that starts it.
    """
    process = await asyncio.create_subprocess_exec(
        *before,
        str(EXECUTABLE),
        *_words(home, listen, options),
        env=environment_without(*HOMES) | environment,
        cwd=home,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with _watched(process, len(listen) or 1) as server:
        yield server


def _words(home: Path, listen: Sequence[str], options: Sequence[str]) -> list[str]:
    addresses = listen or ("ws://127.0.0.1:0",)
    listening = [word for address in addresses for word in ("--listen", address)]
    return ["--home", str(home), *listening, *options]


@asynccontextmanager
async def _watched(
    process: ForkedProcess | asyncio.subprocess.Process, addresses: int
) -> AsyncIterator[Running]:
    assert process.stderr is not None
    try:
        urls: list[str] = []
        said = ""
        with anyio.fail_after(START_S):
            while len(urls) < addresses:
                line = (await process.stderr.readline()).decode()
                said += line
                assert line, f"the server ended:\n{said}"
                # With a database warnings may come first.
                if found := re.fullmatch(r"listening on: (\S+)\n", line):
                    urls.append(found[1])
        yield Running(process, urls)
    finally:
        if process.returncode is None:
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
        timeout=RUN_S,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def tree_of(pid: int) -> list[int]:
    """Return a process and all that descend from it. Linux only."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            found = re.search(r"PPid:\t(\d+)", (folder / "status").read_text())
        except OSError:
            continue
        if found is not None:
            parents[int(folder.name)] = int(found[1])
    tree = [pid]
    for one in tree:
        tree += [child for child, parent in parents.items() if parent == one]
    return tree


def memory_mb(*pids: int) -> float:
    """Return what processes take of memory; what several have is divided among them. Linux only."""
    total = 0
    for pid in pids:
        found = re.search(r"Pss:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text())
        assert found is not None
        total += int(found[1])
    return total / 1024
