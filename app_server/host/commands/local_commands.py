"""Commands on this machine, each in its sandbox; none outlives this process.

From top to bottom: the spawner of a server, which is started with the first command and again if it
has died; how a command is to be started, its process with its input and output, and all commands of
a server.
Source: docs/tools.md, "Commands", "Sandbox".
"""

import asyncio
import contextlib
import fcntl
import json
import logging
import os
import signal
import socket
import struct
import sys
import tempfile
import termios
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.to_thread

from app_server.host.commands.output import RATES, OnOutput, OutputReader, ReadRates, Stream
from app_server.host.proxy.gate import Gate, UnaskedGate
from app_server.host.sandbox.linux.placeholders import PlaceholderRecords
from app_server.host.sandbox.linux.process_limits import ServerGroup
from app_server.host.sandbox.wrapped_command import SandboxUnavailable, WrappedCommand
from app_server.host.scripts import end_script, start_script
from app_server.permissions.rules import RuleBook
from app_server.permissions.sandbox.policy import EffectivePolicy, pin_roots, resolved
from app_server.permissions.sandbox.roots import RootChanged
from app_server.runtime.loader import Lazy, LoadFailed, load

if TYPE_CHECKING:
    from app_server.host.proxy.server import ProxyServer
    from app_server.host.sandbox.machine_sandbox import MachineSandbox


SPAWNER = Path(__file__).with_name("spawner.py")

CLOSE_S = 5.0
"""For the spawner to end by itself, as it has nothing left to do by then; then it is killed."""

SEND_S = 10.0
"""For the spawner to take an order; it takes them one after the other, in less than a ms each."""


class SpawnerGone(OSError):
    """The spawner takes no orders; the next one starts another."""


class Spawner:
    """Hands orders to the spawner (app_server/host/commands/spawner.py)."""

    def __init__(self, group: ServerGroup) -> None:
        """`group` is the cgroup of all commands."""
        self._group = group
        self._process: asyncio.subprocess.Process | None = None
        self._socket: socket.socket | None = None
        self._lock = anyio.Lock()
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The spawner's process id; None while there is none."""
        alive = self._process is not None and self._process.returncode is None
        return self._process.pid if self._process is not None and alive else None

    async def order(self, order: Mapping[str, object], fds: Sequence[int]) -> None:
        """Hand over a command (`Order` of the spawner) and its descriptors, which stay open here.

        `fds` begins with the control socket.

        Raises:
            OSError: there is no spawner, or it does not take the order.
        """
        with _sealed(json.dumps(order).encode()) as file:
            async with self._lock:
                connection = await self._connected()
                try:
                    with anyio.fail_after(SEND_S):
                        await _send(connection, [file, *fds])
                except (OSError, TimeoutError) as exc:
                    await self._drop()
                    raise SpawnerGone(0, f"the spawner of commands is gone: {exc}") from exc

    async def prepare(self) -> None:
        """Start the spawner unless it runs: it cleans up resources made for a command.

        Raises:
            OSError: it cannot be started.
        """
        async with self._lock:
            await self._connected()

    async def aclose(self) -> None:
        """Close the spawner; supervisors end the commands that still run."""
        async with self._lock:
            self._closed = True
            await self._drop()

    async def _connected(self) -> socket.socket:
        if self._closed:
            raise SpawnerGone(0, "the server is stopping")
        if self.pid is None or self._socket is None:
            await self._drop()
            entrance = await anyio.to_thread.run_sync(self._group.entrance)
            ours, theirs = socket.socketpair()
            with theirs:
                ours.setblocking(False)
                try:
                    self._process = await start_script(
                        SPAWNER, *(() if entrance is None else (entrance,)), stdin=theirs.fileno()
                    )
                except BaseException:
                    ours.close()
                    raise
            self._socket = ours
        return self._socket

    async def _drop(self) -> None:
        process, self._process = self._process, None
        connection, self._socket = self._socket, None
        if connection is not None:
            connection.close()
        if process is not None:
            await end_script(process, CLOSE_S)


async def _send(connection: socket.socket, fds: Sequence[int]) -> None:
    while True:
        try:
            socket.send_fds(connection, [b"o"], fds)
        except BlockingIOError:
            await anyio.wait_writable(connection)
        else:
            return


@contextlib.contextmanager
def _sealed(content: bytes) -> Iterator[int]:
    """Give a file without a name that holds this, to be read from its beginning."""
    if sys.platform == "linux":
        fd = os.memfd_create("order", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    try:
        with open(fd, "wb", closefd=False) as writer:
            writer.write(content)
        os.lseek(fd, 0, os.SEEK_SET)
        yield fd
    finally:
        os.close(fd)


logger = logging.getLogger(__name__)


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

    def __init__(
        self, control: socket.socket, running: set["LocalCommand"], rates: ReadRates
    ) -> None:
        """Stay in `running` until all processes of the command have ended."""
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
        self._rates = rates
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
        self._readers["stdout"] = OutputReader(stdout, "stdout", on, rates=self._rates)
        if stderr is not None:
            self._readers["stderr"] = OutputReader(stderr, "stderr", on, rates=self._rates)

    def attach_terminal(self, fd: int, on: OnOutput) -> None:
        """Use the side of a terminal that is not the command's, which it owns from now on."""
        self._input = self._terminal = fd
        self._readers["stdout"] = OutputReader(
            fd, "stdout", on, is_terminal=True, rates=self._rates
        )

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
        """Pause reading until `resume_reading`; a full pipe then blocks the program."""
        for reader in self._readers.values():
            reader.pause()

    def resume_reading(self) -> None:
        """Read its output again."""
        for reader in self._readers.values():
            reader.resume()

    def discard(self, stream: Stream) -> None:
        """Read and drop the rest of one stream."""
        self._readers[stream].discard()

    def resize(self, size: TerminalSize) -> None:
        """Resize the terminal; without one no effect."""
        if self._terminal is not None:
            set_size(self._terminal, size)

    def terminate(self) -> None:
        """Have all of it ended: SIGTERM now, SIGKILL after 2 s; never waits."""
        with suppress(OSError):
            self._control.send(b"t")

    async def stop(self) -> None:
        """End all processes of the command and wait for their end, at most 5 s."""
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
        if not data:
            self._supervisor_gone()

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


T = TypeVar("T")

RECORDS = "locks/placeholders"
"""In a server's home: where placeholders are."""

START_S = 30.0
"""For a command to be started; a disk that sleeps may take long."""

PIPE_BYTES = (1024 * 1024, 256 * 1024)
"""Capacities of a pipe in bytes, the first that the system allows: fewer and larger reads."""


class LocalCommands:
    """Commands of one server; all processes of them end with it."""

    def __init__(self, rules: RuleBook | None = None, home: Path | None = None) -> None:
        """Apply `rules` to the connections of commands that have no gate.

        In `home` is written down what a sandbox leaves behind if this process is killed.
        """
        self.rates = RATES
        """At which the output of commands is read that start from now on."""
        self._rules = rules or RuleBook()
        self._group = ServerGroup()
        self.spawner = Spawner(self._group)
        self._running: set[LocalCommand] = set()
        self._records = None if home is None else PlaceholderRecords(home / RECORDS)
        self._sandbox = Lazy("the sandbox of commands", self._make_sandbox)
        self._proxy = Lazy("the proxy of commands", _load_proxy)
        self._cleaning_up: set[asyncio.Task[None]] = set()

    async def load_sandbox(self) -> None:
        """Import the sandbox early, so that the first command need not wait for it.

        Raises:
            LoadFailed: it cannot be imported now.
        """
        await self._sandbox.get()
        await self.remove_left()

    async def remove_left(self) -> None:
        """Remove the placeholders that killed servers have left in workspaces."""
        if self._records is not None:
            await anyio.to_thread.run_sync(self._records.remove_left)

    async def pin_roots(self, sandbox_policy: EffectivePolicy, *, anew: bool = True) -> None:
        """Pin the roots of a policy, as its user has named them; see PinnedRoots.pin.

        Removes what killed servers left behind in them.
        """
        await anyio.to_thread.run_sync(self._pin_roots, sandbox_policy, anew)

    def _pin_roots(self, sandbox_policy: EffectivePolicy, anew: bool) -> None:
        pin_roots(sandbox_policy, anew=anew)
        if self._records is not None:
            self._records.remove_left()

    async def start(
        self,
        launch: CommandLaunch,
        sandbox_policy: EffectivePolicy,
        on_output: OnOutput,
        gate: Gate | None = None,
    ) -> LocalCommand:
        """Start a command; it runs until it ends or is stopped, not only while it is awaited.

        `sandbox_policy` is as settings have it: links are followed here. `on_output` never waits.
        `gate` decides about its connections where its network is the proxy; without one the
        settings and rules alone do.

        Raises:
            SandboxUnavailable: it cannot be confined on this machine, and was not started.
            OSError: it cannot be started; `filename` names the folder or program.
        """
        if not sandbox_policy.is_restricted:
            return await self._start(launch, on_output)
        proxy: type[ProxyServer] | None = None
        if sandbox_policy.proxy is not None:
            proxy = await _loaded(self._proxy, "the proxy of the command")
            gate = gate or UnaskedGate(sandbox_policy.proxy, self._rules)
        sandbox = await _loaded(self._sandbox, "the sandbox")
        # What a sandbox puts into a workspace is removed by it if this process is killed.
        await self.spawner.prepare()
        wrapped = await anyio.to_thread.run_sync(self._wrap, sandbox, launch, sandbox_policy)
        command: LocalCommand | None = None
        try:
            confined = replace(
                launch,
                argv=wrapped.argv,
                takes_terminal=wrapped.takes_terminal,
                inherited_fds=(*launch.inherited_fds, *wrapped.pass_fds),
                placeholders=wrapped.placeholders,
                is_wrapped=True,
            )
            command = await self._start(confined, on_output)
        finally:
            wrapped.started()
            serving = None
            if command is not None and proxy is not None:
                assert gate is not None
                assert wrapped.network is not None
                serving = proxy(gate, wrapped.network)
            self._clean_up(wrapped, command, serving)
        return command

    async def aclose(self) -> None:
        """End all commands, release their resources, then end the spawner."""
        async with anyio.create_task_group() as tasks:
            for command in list(self._running):
                tasks.start_soon(command.stop)
        await self.spawner.aclose()
        await anyio.to_thread.run_sync(self._group.remove)
        while self._cleaning_up:
            await asyncio.wait(self._cleaning_up)

    async def _make_sandbox(self) -> "MachineSandbox":
        made = await load(_machine_sandbox)
        return made(records=self._records)

    def _wrap(
        self,
        sandbox: "MachineSandbox",
        launch: CommandLaunch,
        sandbox_policy: EffectivePolicy,
    ) -> WrappedCommand:
        if self._records is not None:
            self._records.remove_left()
        try:
            real = resolved(sandbox_policy)
        except RootChanged as exc:
            raise SandboxUnavailable(str(exc)) from None
        cwd = os.path.realpath(launch.cwd)
        return sandbox.wrap(launch.argv, cwd, real, tty=launch.terminal is not None)

    async def _start(self, launch: CommandLaunch, on_output: OnOutput) -> LocalCommand:
        """Have the spawner start a command as it is, and wait until it was started."""
        ours, theirs = socket.socketpair()
        command = LocalCommand(ours, self._running, self.rates)
        try:
            with ExitStack() as given:
                ends = _attach(command, launch, on_output, given)
                if launch.starts_paused:
                    command.pause_reading()
                given.callback(theirs.close)
                order = {
                    "argv": list(launch.argv),
                    "env": dict(launch.env),
                    "cwd": launch.cwd,
                    "fds": [*range(len(ends.fds)), *launch.inherited_fds],
                    "terminal": ends.terminal,
                    "wrapped": launch.is_wrapped,
                    "placeholders": {str(fd): name for fd, name in launch.placeholders},
                }
                fds = [theirs.fileno(), *ends.fds, *launch.inherited_fds]
                await self.spawner.order(order, fds)
                # Only then the end of a supervisor that is killed at once is seen here.
                theirs.close()
                with anyio.fail_after(START_S):
                    await command.started
        except BaseException as exc:
            # The end of the control socket ends what was begun.
            command.abandon()
            if isinstance(exc, TimeoutError):
                raise OSError(0, f"it was not started within {START_S:.0f} s") from exc
            raise
        return command

    def _clean_up(
        self, wrapped: WrappedCommand, command: LocalCommand | None, serving: "ProxyServer | None"
    ) -> None:
        task = asyncio.get_running_loop().create_task(_close(wrapped, command, serving))
        self._cleaning_up.add(task)
        task.add_done_callback(self._cleaning_up.discard)


async def _loaded(lazy: Lazy[T], what: str) -> T:
    try:
        return await lazy.get()
    except LoadFailed as exc:
        raise SandboxUnavailable(f"{what} cannot be loaded: {exc}") from exc


async def _load_proxy() -> "type[ProxyServer]":
    return await load(_proxy_server)


def _proxy_server() -> "type[ProxyServer]":
    from app_server.host.proxy.server import ProxyServer

    return ProxyServer


def _machine_sandbox() -> "type[MachineSandbox]":
    from app_server.host.sandbox.machine_sandbox import MachineSandbox

    return MachineSandbox


async def _close(
    wrapped: WrappedCommand, command: LocalCommand | None, serving: "ProxyServer | None"
) -> None:
    if command is not None:
        await command.gone.wait()
    if serving is not None:
        await serving.aclose()
    await anyio.to_thread.run_sync(wrapped.close)


@dataclass(frozen=True, slots=True)
class _Ends:
    """The command's ends of its pipes or its terminal."""

    fds: list[int]
    """Its stdin, stdout and stderr; empty with a controlling terminal."""
    terminal: str | None = None
    """The path of its controlling terminal."""


def _attach(
    command: LocalCommand, launch: CommandLaunch, on_output: OnOutput, given: ExitStack
) -> _Ends:
    """Create pipes or a terminal; descriptors of the child are closed with `given`."""
    if launch.terminal is not None:
        ours, slave = os.openpty()
        # As long as nobody has the other side open, reading ours would fail.
        given.callback(os.close, slave)
        set_size(ours, launch.terminal)
        command.attach_terminal(ours, on_output)
        if launch.takes_terminal:
            return _Ends([slave] * 3)
        return _Ends([], os.ttyname(slave))
    stdin, theirs_in = None, -1
    if launch.has_stdin:
        theirs_in, stdin = os.pipe()
    else:
        theirs_in = os.open(os.devnull, os.O_RDONLY)
    given.callback(os.close, theirs_in)
    stdout, theirs_out = _output_pipe(given)
    stderr, theirs_err = (None, theirs_out) if launch.merges_stderr else _output_pipe(given)
    command.attach_pipes(stdin, stdout, stderr, on_output)
    return _Ends([theirs_in, theirs_out, theirs_err])


def _output_pipe(given: ExitStack) -> tuple[int, int]:
    ours, theirs = os.pipe()
    given.callback(os.close, theirs)
    if sys.platform == "linux":
        # A user's pipes together have a bound; then it stays at what it is.
        for size in PIPE_BYTES:
            with suppress(OSError):
                fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, size)
                break
    return ours, theirs
