"""A command that runs on this machine.

Source: docs/tools.md, "Commands".
"""

import asyncio
import fcntl
import logging
import os
import signal
import socket
import struct
import termios
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, TypeAlias

import anyio

from app_server.host.commands.launch import TerminalSize
from app_server.host.commands.reading import Reading

logger = logging.getLogger(__name__)

TRAILING_S = 0.2
"""Seconds to read on after the end of a command, from processes that still hold its pipes."""

GONE_S = 5.0
"""For the supervisor to end all; it takes 2 s until SIGKILL, and a disk that hangs may keep it."""

MAX_LINE_BYTES = 8192
"""Of the control socket."""

Stream: TypeAlias = Literal["stdout", "stderr"]
OnOutput: TypeAlias = Callable[[Stream, bytes], None]
"""Takes what was printed; never waits. Not called any more once the command has finished."""


class InputClosed(OSError):
    """The command takes no input: it has none, closed it, or has ended."""


class RunningCommand:
    """A command, its input and its output; made by Commands.start alone."""

    def __init__(self, control: socket.socket, on_gone: Callable[["RunningCommand"], None]) -> None:
        """`on_gone` is called once, when nothing of it is left."""
        self.pid = 0
        """It leads a session and a process group of this id."""
        self.returncode: int | None = None
        """Exit status, or the negative number of a signal; None while it runs."""
        self.has_all_output = True
        """False if others still held its pipes when its output was no longer waited for."""
        self.finished = asyncio.Event()
        """It has ended, and all of its output was handed over."""
        self.gone = asyncio.Event()
        """Nothing is left of it, also nothing that it started."""
        self.started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._control = control
        self._on_gone = on_gone
        self._line = b""
        self._loop = asyncio.get_running_loop()
        self._readings: dict[Stream, Reading] = {}
        self._input: int | None = None
        self._terminal: int | None = None
        self._finishing: asyncio.Task[None] | None = None
        control.setblocking(False)
        self._loop.add_reader(control, self._read_control)

    def attach_pipes(
        self, stdin: int | None, stdout: int, stderr: int | None, on: OnOutput
    ) -> None:
        """Use pipes, which it owns from now on."""
        self._input = stdin
        if stdin is not None:
            os.set_blocking(stdin, False)
        self._readings["stdout"] = Reading(stdout, lambda data: on("stdout", data))
        if stderr is not None:
            self._readings["stderr"] = Reading(stderr, lambda data: on("stderr", data))

    def attach_terminal(self, fd: int, on: OnOutput) -> None:
        """Use the side of a terminal that is not the command's, which it owns from now on."""
        self._input = self._terminal = fd
        reading = Reading(fd, lambda data: on("stdout", data), is_terminal=True)
        self._readings["stdout"] = reading

    @property
    def takes_input(self) -> bool:
        """Whether something can be written to it."""
        return self._input is not None

    async def write(self, data: bytes) -> None:
        """Write to its input; waits while it does not read. Calls must not overlap.

        Raises:
            InputClosed: nothing reads it; part of it may have been taken.
        """
        rest = memoryview(data)
        while rest:
            if self._input is None:
                raise InputClosed(0, "stdin is closed")
            try:
                rest = rest[os.write(self._input, rest) :]
            except BlockingIOError:
                try:
                    await anyio.wait_writable(self._input)
                except anyio.ClosedResourceError:
                    raise InputClosed(0, "stdin is closed") from None
            except OSError as exc:
                raise InputClosed(exc.errno, "stdin is closed") from None

    def close_input(self) -> None:
        """End its input; at a terminal that is an end-of-file character."""
        if self._terminal is not None:
            with suppress(OSError):
                os.write(self._terminal, b"\x04")
        elif self._input is not None:
            anyio.notify_closing(self._input)
            os.close(self._input)
            self._input = None

    def hold(self) -> None:
        """Read no output until `go_on`: a command that prints more than a pipe holds waits."""
        for reading in self._readings.values():
            reading.hold()

    def go_on(self) -> None:
        """Read its output again."""
        for reading in self._readings.values():
            reading.go_on()

    def discard(self, stream: Stream) -> None:
        """Read one stream, and hand over nothing of it any more."""
        self._readings[stream].discard()

    def resize(self, size: TerminalSize) -> None:
        """Change the size of its terminal; does nothing without one."""
        if self._terminal is not None:
            set_size(self._terminal, size)

    def terminate(self) -> None:
        """Have all of it ended: SIGTERM now, SIGKILL after 2 s; never waits."""
        with suppress(OSError):
            self._control.send(b"t")

    async def stop(self) -> None:
        """End all of it, and wait until nothing is left; returns within 5 s."""
        self.terminate()
        with anyio.CancelScope(shield=True), anyio.move_on_after(GONE_S) as limit:
            await self.gone.wait()
            await self.finished.wait()
        if limit.cancelled_caught:
            logger.warning("command %d does not end, although it was killed", self.pid)

    def abandon(self) -> None:
        """Let go of a command that was not started; closing twice is harmless."""
        self._close_control()
        self._close_streams()
        self._on_gone(self)

    def _read_control(self) -> None:
        try:
            data = self._control.recv(MAX_LINE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            self._handle_line(line)
        if not data:
            self._supervisor_gone()

    def _handle_line(self, line: bytes) -> None:
        word, _, rest = line.partition(b" ")
        if word == b"started":
            self.pid = int(rest)
            if not self.started.done():
                self.started.set_result(None)
        elif word == b"failed":
            number, _, what = rest.partition(b" ")
            error = OSError(int(number), os.strerror(int(number)), os.fsdecode(what))
            if not self.started.done():
                self.started.set_exception(error)
        elif word == b"exited":
            self._ended(int(rest))

    def _ended(self, returncode: int) -> None:
        if self.returncode is None:
            self.returncode = returncode
            self._finishing = self._loop.create_task(self._finish())

    async def _finish(self) -> None:
        with anyio.move_on_after(TRAILING_S):
            for reading in self._readings.values():
                await reading.ended.wait()
        self._close_streams()
        self.has_all_output = all(reading.is_complete for reading in self._readings.values())
        self.finished.set()

    def _supervisor_gone(self) -> None:
        self._close_control()
        self._on_gone(self)
        if not self.started.done():
            self.started.set_exception(OSError(0, "the command's supervisor is gone"))
            return
        if self.pid and self.returncode is None:
            # Somebody killed the supervisor: what can be reached is ended from here.
            with suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)
            self._ended(-signal.SIGKILL)
        self.gone.set()

    def _close_control(self) -> None:
        if self._control.fileno() >= 0:
            self._loop.remove_reader(self._control)
            self._control.close()

    def _close_streams(self) -> None:
        for reading in self._readings.values():
            reading.drain()
        if self._input is not None:
            anyio.notify_closing(self._input)
            os.close(self._input)
            self._input = self._terminal = None


def set_size(fd: int, size: TerminalSize) -> None:
    """Set the size of the terminal behind a descriptor."""
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", size.rows, size.cols, 0, 0))
