"""One process of an exec server, between its pipes and the connection of its client.

Output is sent as far as the client has credited it; input is credited as the process takes it. So
neither side holds more than a window of a stream, and a process that is not read does not hold up
the others.
Source: docs/environments.md, "The exec protocol".
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import anyio

from app_server.host.exec.protocol import (
    CHUNK_BYTES,
    CREDIT_BYTES,
    WINDOW_BYTES,
    ProtocolBroken,
    pack,
    render,
)
from app_server.host.exec.server.children import ServedChild, TunnelChild
from app_server.host.exec.server.commands import CommandChild
from app_server.host.processes import LocalProcess
from protocol.exec.processes import ProcessCreditParams, ProcessExitedParams, StreamName

Child: TypeAlias = LocalProcess | CommandChild | ServedChild | TunnelChild

EXIT_S = 0.1
"""Seconds that a pipe's EOF waits for the process to exit, to go out in one message with it."""

DRAIN_S = 2.0
"""After the end of the process, for others that hold its pipes."""


class _OutputStream:
    """The send window of one output stream."""

    def __init__(self) -> None:
        self.credit = WINDOW_BYTES
        self.reads = 0
        self.is_reading = False
        """Whether the pipe is waited for, and not the client."""
        self.more = anyio.Event()
        self.ended = anyio.Event()

    def grant(self, count: int) -> None:
        self.credit += count
        if self.credit > WINDOW_BYTES:
            raise ProtocolBroken("credit for more than was sent")
        self.more.set()

    async def ended_or_silent(self) -> None:
        """Wait for the end of the stream, or until it has been silent for a while.

        Time in which the client was waited for does not count: nothing of the process is lost.
        """
        while not self.ended.is_set():
            reads, was_reading = self.reads, self.is_reading
            with anyio.move_on_after(DRAIN_S):
                await self.ended.wait()
            if was_reading and self.is_reading and self.reads == reads:
                return


class Relay:
    """One process, from its start to its end."""

    def __init__(self, process_id: int, send: Callable[[str | bytes], Awaitable[None]]) -> None:
        self._id = process_id
        self._send = send
        self.killed = anyio.Event()
        self.child: Child | None = None
        """The process; set before the client gets the answer to its start."""
        self._streams = {"stdout": _OutputStream(), "stderr": _OutputStream()}
        self._untaken = 0
        self._input = anyio.Event()

    def write(self, data: bytes) -> None:
        """Queue input; never waits.

        Raises:
            ProtocolBroken: more than the window, or before the start was answered.
        """
        if self.child is None:
            raise ProtocolBroken("input for a process that has not started")
        self._untaken += len(data)
        if self._untaken > WINDOW_BYTES:
            raise ProtocolBroken("more input than was credited")
        if not self.child.stdin.is_closing():
            self.child.write(data)
        self._input.set()

    def close_stdin(self) -> None:
        """End the input; queued input still reaches the process."""
        if self.child is not None:
            self.child.stdin.close()

    def grant(self, stream: StreamName, count: int) -> None:
        """Grant credit for more output.

        Raises:
            ProtocolBroken: more than was sent.
        """
        if stream == "stdin":
            raise ProtocolBroken("credit for input")
        self._streams[stream].grant(count)

    async def run(self, child: Child) -> None:
        """Relay until the process has ended and its output was sent, or it is to be killed."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._pump, "stdout", child.stdout, child.ended)
            tasks.start_soon(self._pump, "stderr", child.stderr, child.ended)
            tasks.start_soon(self._take_input, child)
            tasks.start_soon(self._until_over, child)
            await self.killed.wait()
            tasks.cancel_scope.cancel()

    async def send_end(self, returncode: int) -> None:
        """Say how the process ended: the last that is said of it."""
        was_signal = returncode < 0
        params = ProcessExitedParams(
            process_id=self._id,
            exit_code=None if was_signal else returncode,
            signal=-returncode if was_signal else None,
        )
        await self._send(render(method="process/exited", params=params))

    async def _until_over(self, child: Child) -> None:
        await child.ended.wait()
        for output in self._streams.values():
            await output.ended_or_silent()
        self.killed.set()

    async def _pump(
        self, stream: StreamName, reader: asyncio.StreamReader, exited: anyio.Event
    ) -> None:
        output = self._streams[stream]
        while True:
            while not output.credit:
                output.more = anyio.Event()
                await output.more.wait()
            output.is_reading = True
            chunk = await reader.read(min(CHUNK_BYTES, output.credit))
            output.is_reading = False
            output.reads += 1
            if not chunk:
                break
            output.credit -= len(chunk)
            await self._send(pack(stream, self._id, chunk))
        output.ended.set()
        with anyio.move_on_after(EXIT_S):
            await exited.wait()
        if not exited.is_set():
            await self._send(pack(stream, self._id, b""))

    async def _take_input(self, child: Child) -> None:
        while True:
            await self._input.wait()
            self._input = anyio.Event()
            # A process that has closed its input loses the rest, as it would on this machine.
            with contextlib.suppress(OSError):
                await child.drain()
            if self._untaken >= CREDIT_BYTES:
                taken, self._untaken = self._untaken, 0
                params = ProcessCreditParams(process_id=self._id, stream="stdin", bytes=taken)
                await self._send(render(method="process/credit", params=params))
