"""A command on this machine: how it is to be started, its process, its input and its output.

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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import anyio

from app_server.host.commands.reading import OnOutput, OutputReader, Stream


@dataclass(frozen=True, slots=True)
class TerminalSize:
    """In characters; 1 to 65,535 each."""

    rows: int = 24
    cols: int = 80


@dataclass(frozen=True, slots=True)
class CommandLaunch:
    """One command that is to be started on this machine."""

    argv: Sequence[str]
    """Program and arguments; a program without a slash is looked up in `PATH` of `env`."""
    env: Mapping[str, str] = field(repr=False)
    """The whole environment."""
    cwd: str
    """An absolute path."""
    terminal: TerminalSize | None = None
    """Run at a terminal of this size; its output is all stdout."""
    takes_terminal: bool = False
    """It makes its stdin its controlling terminal by itself."""
    has_stdin: bool = False
    """Whether anything can be written to it; without, and without a terminal, it reads nothing."""
    merges_stderr: bool = True
    """Whether stderr comes with stdout, in the order in which both were written."""
    starts_paused: bool = False
    """Nothing of its output is read before `LocalCommand.resume_reading`: what it prints waits."""
    inherited_fds: Sequence[int] = ()
    """Descriptors of this process that it gets under the same numbers, above 2; it is the caller
    who closes them, once it was started. At most 248."""
    placeholders: Sequence[tuple[int, str]] = ()
    """Of these the ones of empty folders that are removed when it has ended, and what each is
    called."""
    is_wrapped: bool = False
    """The process is a sandbox that dies at once of SIGTERM and takes the command with it: only
    what is in it gets the SIGTERM."""


logger = logging.getLogger(__name__)

TRAILING_S = 0.2
"""Seconds to read on after the end of a command, from processes that still hold its pipes."""

GONE_S = 5.0
"""For the supervisor to end all; it takes 2 s until SIGKILL, and a disk that hangs may keep it."""

MAX_LINE_BYTES = 8192
"""Of the control socket."""


class InputClosed(OSError):
    """The command takes no input: it has none, closed it, or has ended."""


class LocalCommand:
    """A command, its input and its output; made by LocalCommands.start alone."""

    def __init__(self, control: socket.socket, running: set["LocalCommand"]) -> None:
        """Be in `running` until nothing of it is left."""
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
        self._running = running
        running.add(self)
        self._line = b""
        self._loop = asyncio.get_running_loop()
        self._readers: dict[Stream, OutputReader] = {}
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
        self._readers["stdout"] = OutputReader(stdout, "stdout", on)
        if stderr is not None:
            self._readers["stderr"] = OutputReader(stderr, "stderr", on)

    def attach_terminal(self, fd: int, on: OnOutput) -> None:
        """Use the side of a terminal that is not the command's, which it owns from now on."""
        self._input = self._terminal = fd
        self._readers["stdout"] = OutputReader(fd, "stdout", on, is_terminal=True)

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

    def pause_reading(self) -> None:
        """Read no output until `resume_reading`; who prints more than a pipe takes has to wait."""
        for reader in self._readers.values():
            reader.pause()

    def resume_reading(self) -> None:
        """Read its output again."""
        for reader in self._readers.values():
            reader.resume()

    def discard(self, stream: Stream) -> None:
        """Read one stream, and hand over nothing of it any more."""
        self._readers[stream].discard()

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
        """Close a command that was not started; closing twice is harmless."""
        self._close_control()
        self._close_streams()
        self._running.discard(self)

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
            for reader in self._readers.values():
                await reader.ended.wait()
        self._close_streams()
        self.has_all_output = all(reader.is_complete for reader in self._readers.values())
        self.finished.set()

    def _supervisor_gone(self) -> None:
        self._close_control()
        self._running.discard(self)
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
        for reader in self._readers.values():
            reader.drain()
        if self._input is not None:
            anyio.notify_closing(self._input)
            os.close(self._input)
            self._input = self._terminal = None


def set_size(fd: int, size: TerminalSize) -> None:
    """Set the size of the terminal behind a descriptor."""
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", size.rows, size.cols, 0, 0))
