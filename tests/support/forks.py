"""Programs of the server as processes that begin with everything imported.

A start of `app-server` takes more than a second of processor time, nearly all of it for imports.
Tests that kill servers, or that need two of them on one home, need processes and no imports: theirs
are forked from one that has imported everything (multiprocessing's fork server, one for each
process of a run). Tests of starts, and of what the command line says, run the executable.
Source: https://docs.python.org/3/library/multiprocessing.html#contexts-and-start-methods
"""

import asyncio
import importlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from tests.support.pytest_plugins.patience import be_patient

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.support.forks_loaded"])

LINE_BYTES = 16 * 1024 * 1024
"""The longest line that is read of a process."""


class ForkedProcess:
    """A forked process as `asyncio.subprocess.Process` has it; all three streams are pipes."""

    def __init__(
        self,
        process: Any,
        stdin: asyncio.StreamWriter,
        stdout: tuple[asyncio.StreamReader, asyncio.ReadTransport],
        stderr: tuple[asyncio.StreamReader, asyncio.ReadTransport],
    ) -> None:
        self._process = process
        self._loop = asyncio.get_running_loop()
        self._has_ended = asyncio.Event()
        self._reading = (stdout[1], stderr[1])
        self._loop.add_reader(process.sentinel, self._on_end)
        self.pid: int = process.pid
        self.stdin = stdin
        self.stdout = stdout[0]
        self.stderr = stderr[0]

    @property
    def returncode(self) -> int | None:
        """The exit status, or less than 0 for a signal; None while it runs."""
        status: int | None = self._process.exitcode
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal, if it still runs."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    async def wait(self) -> int:
        """Wait for the end, and return the exit status."""
        await self._has_ended.wait()
        status: int = self._process.exitcode
        return status

    async def aclose(self) -> None:
        """End it at once, wait for that, and close its streams."""
        self.kill()
        with anyio.CancelScope(shield=True):
            await self.wait()
        for transport in self._reading:
            transport.close()

    async def communicate(self) -> tuple[bytes, bytes]:
        """Close stdin, read all that comes and wait for the end."""
        self.stdin.close()
        out, err = await asyncio.gather(self.stdout.read(), self.stderr.read())
        await self.wait()
        return out, err

    def _on_end(self) -> None:
        self._loop.remove_reader(self._process.sentinel)
        self.stdin.close()
        self._has_ended.set()


async def fork_program(
    module: str, *words: str, environment: Mapping[str, str], folder: Path
) -> ForkedProcess:
    """Run `main` of a module in a process of its own, with words of a command line."""
    pipes = [os.pipe() for _ in range(3)]
    (in_read, in_write), (out_read, out_write), (err_read, err_write) = pipes
    streams = [_Descriptor(number) for number in (in_read, out_write, err_write)]
    arguments = (module, words, dict(environment), str(folder), streams)
    process = CONTEXT.Process(target=run_program, args=arguments, daemon=True)
    try:
        # The first one waits for all imports.
        await anyio.to_thread.run_sync(process.start)
    finally:
        for number in (in_read, out_write, err_write):
            os.close(number)
    return ForkedProcess(
        process, await _writer(in_write), await _reader(out_read), await _reader(err_read)
    )


async def _reader(descriptor: int) -> tuple[asyncio.StreamReader, asyncio.ReadTransport]:
    reader = asyncio.StreamReader(LINE_BYTES)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", 0)
    )
    return reader, transport


async def _writer(descriptor: int) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(descriptor, "wb", 0)
    )
    return asyncio.StreamWriter(transport, protocol, None, loop)


class _Descriptor:
    """A descriptor that another process gets a copy of."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (DupFd(self._number),)


def _received(sent: Any) -> int:
    number: int = sent.detach()
    return number


def run_program(
    module: str, words: Sequence[str], environment: dict[str, str], folder: str, streams: list[int]
) -> None:
    """Be this program until it ends, in a process that was forked for it."""
    be_patient()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        file = os.fdopen(number, "w" if number else "r", 1, "utf-8", closefd=False)
        setattr(sys, name, file)
        setattr(sys, f"__{name}__", file)
    is_customized = environment.get("PYTHONPATH") not in (None, os.environ.get("PYTHONPATH"))
    os.environ.clear()
    os.environ.update(environment)
    if is_customized:
        # As a start of Python does: tests/support/dying.
        sys.path[:0] = environment["PYTHONPATH"].split(os.pathsep)
        sys.modules.pop("sitecustomize", None)
        importlib.import_module("sitecustomize")
    os.chdir(folder)
    sys.argv[:] = [module, *words]
    sys.exit(importlib.import_module(module).main())
