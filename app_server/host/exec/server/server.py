"""The exec server: runs processes for the clients that connect to it.

Whoever connects may run anything this user may. So web pages are refused, a token is compared where
one is set, other users of the machine are refused where none is, and a client that goes takes its
processes with it. From top to bottom: files, which are read as a sandbox policy lets them be and
patched once the client allows it; a process between its pipes and the client's connection, where
neither side holds more than a window of a stream; the clients.
Source: docs/environments.md, "The exec protocol"; docs/tools.md, "Patches".
"""

import asyncio
import contextlib
import errno
import hmac
import http
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import anyio
import anyio.abc
import anyio.lowlevel
import anyio.to_thread
from pydantic import ValidationError
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from app_server.config.home import resolve_home
from app_server.host.commands.local_commands import LocalCommands
from app_server.host.commands.shell import default_shell
from app_server.host.exec.protocol import (
    BUSY,
    CHUNK_BYTES,
    CREDIT_BYTES,
    INVALID,
    MAX_FRAME_BYTES,
    MAX_PATCH_BYTES,
    MAX_PLAN_BYTES,
    NOT_FOUND,
    START_FAILED,
    TOO_LARGE,
    VERSION,
    WINDOW_BYTES,
    ProtocolBroken,
    line_of,
    pack,
    parse,
    plan_line,
    read_params,
    render,
    unpack,
)
from app_server.host.exec.server.commands import (
    CommandChild,
    ServedChild,
    TunnelChild,
    effective_policy_there,
    open_tunnel,
    run_command,
    serving,
)
from app_server.host.processes import LocalProcess, LocalProcesses
from app_server.patch.parse import EmptyPatch, NotApplicable, NotWritten, PatchFailed, parse_patch
from app_server.patch.plan import Plan, plan_patch
from app_server.patch.write import new_token, write_plan
from app_server.permissions.readable import parts_of, readable, reads_everything
from app_server.permissions.sandbox.policy import EffectivePolicy, Ruling, resolved
from app_server.permissions.sandbox.roots import MachinePaths, RootChanged, read_machine_paths
from app_server.runtime.counted_warnings import warn_counted
from app_server.runtime.files.reaching import NOT_A_FILE, Allows, NotReached, open_file
from app_server.runtime.http.listening import AcceptedSockets, CountedConnection
from app_server.runtime.http.peer_user import refusal_of_stranger
from app_server.runtime.launch import Launch
from protocol.exec.files import (
    FileOpenParams,
    PatchAllowed,
    PatchPlanned,
    PatchStartParams,
    PatchText,
    PatchWritten,
)
from protocol.exec.processes import (
    CommandStartParams,
    ConnectionOpenParams,
    ExecEnvironmentInfoResponse,
    ExecInitializeParams,
    ExecInitializeResponse,
    ExecMessage,
    ProcessCreditParams,
    ProcessExitedParams,
    ProcessParams,
    ProcessStartParams,
    ProcessStartResponse,
    StreamName,
)
from protocol.jsonrpc.errors import ErrorObject
from protocol.model import JsonObject

NUMBERS: Mapping[str, int] = {os.strerror(errno.ENOENT): errno.ENOENT, NOT_A_FILE: errno.EINVAL}
"""The `errno` by text of the errors that a client has to tell from others."""


@asynccontextmanager
async def read_file(
    params: FileOpenParams, machine_paths: MachinePaths
) -> AsyncIterator[ServedChild]:
    """Print a regular file for as long as the context lasts; it is read as it is taken.

    Raises:
        OSError: it is not there, is something else, or may not be read.
    """
    file = await anyio.to_thread.run_sync(_open, params, machine_paths)

    async def work(child: ServedChild) -> None:
        while chunk := await anyio.to_thread.run_sync(file.read, CHUNK_BYTES):
            await child.print(chunk)

    try:
        async with serving(work) as child:
            child.size = os.fstat(file.fileno()).st_size
            yield child
    finally:
        file.close()


def _open(params: FileOpenParams, machine_paths: MachinePaths) -> BinaryIO:
    try:
        return open_file(params.path, _allows(params, machine_paths))
    except RootChanged as exc:
        raise OSError(str(exc)) from None
    except NotReached as exc:
        text = str(exc)
        number = NUMBERS.get(text)
        raise (OSError(text) if number is None else OSError(number, text)) from None


def _allows(params: FileOpenParams, machine_paths: MachinePaths) -> Allows:
    sandbox_policy = effective_policy_there(params, None, machine_paths)
    ruling = Ruling(resolved(sandbox_policy))
    given = params.profile
    if given is None or reads_everything(given.profile):
        return lambda real: ruling.access(real) != "none"
    rules = readable(given.profile, given.cwd)
    return lambda real: ruling.access(real) != "none" and rules.allows(parts_of(real))


@asynccontextmanager
async def run_patch(
    params: PatchStartParams, machine_paths: MachinePaths
) -> AsyncIterator[ServedChild]:
    """Serve one patch while the context lasts; a write that has begun is finished.

    Raises:
        OSError: a root is not absolute.
    """
    sandbox_policy = effective_policy_there(params, params.cwd, machine_paths)

    async def work(child: ServedChild) -> None:
        request = await child.input.readline()
        plan, line = await anyio.to_thread.run_sync(_plan, request, params.cwd, sandbox_policy)
        await child.print(line)
        if plan is None or not _is_allowed(await child.input.readline()):
            return
        with anyio.CancelScope(shield=True):
            written = await anyio.to_thread.run_sync(_write, plan)
        await child.print(line_of(written))

    async with serving(work, MAX_PATCH_BYTES) as child:
        yield child


def _plan(request: bytes, cwd: str, sandbox_policy: EffectivePolicy) -> tuple[Plan | None, bytes]:
    try:
        text = PatchText.model_validate_json(request).patch
        plan = plan_patch(parse_patch(text), cwd, sandbox_policy)
        line = plan_line(plan)
        if len(line) > MAX_PLAN_BYTES:
            raise NotApplicable(TOO_LARGE)
    except ValidationError:
        return None, line_of(PatchPlanned(failure="this is no patch"))
    except PatchFailed as exc:
        failed = PatchPlanned(failure=str(exc), is_empty=isinstance(exc, EmptyPatch))
        return None, line_of(failed)
    return plan, line


def _is_allowed(line: bytes) -> bool:
    try:
        return PatchAllowed.model_validate_json(line).write
    except ValidationError:
        # The client has gone on without it, which it says by ending the input.
        return False


def _write(plan: Plan) -> PatchWritten:
    try:
        write_plan(plan, new_token())
    except NotWritten as exc:
        return PatchWritten(failure=str(exc), changed=list(exc.changed or ()))
    return PatchWritten()


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


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine of an exec server."""

    processes: LocalProcesses
    commands: LocalCommands
    paths: MachinePaths


StartParams: TypeAlias = (
    ProcessStartParams
    | CommandStartParams
    | ConnectionOpenParams
    | FileOpenParams
    | PatchStartParams
)

STARTS: Mapping[str, type[StartParams]] = {
    "process/start": ProcessStartParams,
    "command/start": CommandStartParams,
    "connection/open": ConnectionOpenParams,
    "file/open": FileOpenParams,
    "patch/start": PatchStartParams,
}


def run_child(machine: Machine, params: StartParams) -> AbstractAsyncContextManager[Child]:
    """Run the work that a client starts, while the context lasts.

    Raises:
        OSError, ValueError: on entering; it cannot be started.
    """
    match params:
        case ProcessStartParams():
            launch = Launch(params.command, params.args, params.env, params.inherit_env, params.cwd)
            return machine.processes.run(launch)
        case CommandStartParams():
            return run_command(machine.commands, params, machine.paths)
        case ConnectionOpenParams():
            return open_tunnel(params.host, params.port)
        case FileOpenParams():
            return read_file(params, machine.paths)
        case PatchStartParams():
            return run_patch(params, machine.paths)


PING_S = 20.0
"""Between pings, and for the pong; then the other side counts as gone."""

HOW_TO_LET_IN = "It talks to its own user alone, unless it has a token."


@dataclass(frozen=True, slots=True)
class ExecLimits:
    """Bounds of one exec server."""

    max_connections: int = 32
    max_opening: int = 256
    """Sockets beyond that number, for handshakes and refusals; the next one is cut off at once."""
    max_processes: int = 256
    """Of all connections together."""
    hello_s: float = 10.0
    """For the opening handshake, and then for `initialize`."""
    send_s: float = 30.0
    """For a client to take a message; then it counts as gone."""


@dataclass(frozen=True, slots=True)
class ExecSettings:
    """The settings of an exec server."""

    host: str
    """An IP address."""
    port: int
    token: str | None = field(default=None, repr=False)
    """The bearer token that clients must send; None: none, for processes of this user."""
    limits: ExecLimits = field(default_factory=ExecLimits)


class _Connection(CountedConnection, ServerConnection):
    pass


class ExecServer:
    """All connections of one exec server."""

    def __init__(self, settings: ExecSettings) -> None:
        self.limits = settings.limits
        home = resolve_home(None)
        self.machine = Machine(
            LocalProcesses(), LocalCommands(home=home), read_machine_paths(str(home))
        )
        self.running = 0
        """Processes that run, or are about to."""
        self._settings = settings
        self._connections = 0

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[str]:
        """Serve while the context lasts and give the URL; leaving ends all processes.

        Raises:
            OSError: the address cannot be bound.
        """
        settings = self._settings
        accepted = AcceptedSockets(self.limits.max_connections + self.limits.max_opening)
        # The library wants a class, and calls it to make a connection.
        connection: Any = partial(_Connection, accepted=accepted)
        server = await serve(
            self._converse,
            settings.host,
            settings.port,
            create_connection=connection,
            process_request=self._before_upgrade,
            max_size=MAX_FRAME_BYTES,
            open_timeout=self.limits.hello_s,
            close_timeout=2.0,
            ping_interval=PING_S,
            ping_timeout=PING_S,
            compression=None,
            server_header=None,
        )
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        try:
            yield f"ws://{host}:{server.sockets[0].getsockname()[1]}"
        finally:
            with anyio.CancelScope(shield=True):
                server.close()
                await server.wait_closed()
                await self.machine.commands.aclose()
                await self.machine.processes.aclose()

    async def _before_upgrade(self, socket: ServerConnection, request: Request) -> Response | None:
        if "Origin" in request.headers:
            warn_counted(logger, "refused a request with an Origin header")
            return socket.respond(
                http.HTTPStatus.FORBIDDEN, "This server does not talk to web pages.\n"
            )
        if self._settings.token is None:
            accepted = socket.transport.get_extra_info("socket")
            if text := await refusal_of_stranger(accepted, HOW_TO_LET_IN):
                return socket.respond(http.HTTPStatus.FORBIDDEN, text)
        if not self._is_let_in(request.headers.get_all("Authorization")):
            return socket.respond(http.HTTPStatus.UNAUTHORIZED, "A bearer token is needed.\n")
        if self._connections >= self.limits.max_connections:
            return socket.respond(http.HTTPStatus.SERVICE_UNAVAILABLE, "Too many clients.\n")
        return None

    def _is_let_in(self, shown: list[str]) -> bool:
        token = self._settings.token
        if token is None:
            return True
        expected = f"Bearer {token}".encode()
        return len(shown) == 1 and hmac.compare_digest(
            shown[0].encode(errors="surrogateescape"), expected
        )

    async def _converse(self, socket: ServerConnection) -> None:
        self._connections += 1
        try:
            await ExecSession(socket, self).run()
        finally:
            self._connections -= 1


class ExecSession:
    """One client and its processes, which end with the connection."""

    def __init__(self, socket: ServerConnection, server: ExecServer) -> None:
        self._socket = socket
        self._server = server
        self._relays: dict[int, Relay] = {}
        self._last_id = 0
        self._scope = anyio.CancelScope()

    async def run(self) -> None:
        """Serve the client until it goes, or breaks the protocol."""
        reason = ""
        with self._scope:
            async with anyio.create_task_group() as tasks:
                try:
                    await self._shake_hands()
                    while True:
                        frame = await self._socket.recv()
                        if isinstance(frame, bytes):
                            self._take_bytes(frame)
                        else:
                            await self._on_message(parse(frame), tasks)
                except ProtocolBroken as exc:
                    reason = str(exc)
                except (ConnectionClosed, TimeoutError):
                    pass
                tasks.cancel_scope.cancel()
        if reason:
            warn_counted(logger, "a client broke the exec protocol: %s", reason)
            await self._socket.close(1008, reason)

    async def _shake_hands(self) -> None:
        with anyio.fail_after(self._server.limits.hello_s):
            frame = await self._socket.recv()
        message = parse(frame) if isinstance(frame, str) else ExecMessage()
        if message.method != "initialize":
            raise ProtocolBroken("the first message is not initialize")
        params = read_params(ExecInitializeParams, message)
        # Whoever connects names the folders of its work as they are now.
        await anyio.to_thread.run_sync(self._server.machine.paths.pinned.renew)
        await self._server.machine.commands.remove_left()
        if params.protocol_version != VERSION:
            raise ProtocolBroken(f"version {params.protocol_version}; this is {VERSION}")
        await self._answer(message, ExecInitializeResponse(protocol_version=VERSION))

    def _take_bytes(self, frame: bytes) -> None:
        stream, process_id, data = unpack(frame)
        if stream != "stdin":
            raise ProtocolBroken(f"{stream} from a client")
        relay = self._relays.get(process_id)
        # What is on its way to a process that has just ended is nobody's fault.
        if relay is not None:
            relay.write(data)

    async def _on_message(self, message: ExecMessage, tasks: anyio.abc.TaskGroup) -> None:
        match message.method:
            case str() as method if method in STARTS:
                await self._start(message, STARTS[method], tasks)
            case "process/kill":
                if (relay := self._relay(message)) is not None:
                    relay.killed.set()
            case "process/closeStdin":
                if (relay := self._relay(message)) is not None:
                    relay.close_stdin()
            case "process/credit":
                credit = read_params(ProcessCreditParams, message)
                if (found := self._relays.get(credit.process_id)) is not None:
                    found.grant(credit.stream, credit.bytes)
            case "environment/info":
                info = ExecEnvironmentInfoResponse(shell=default_shell(), cwd=str(Path.cwd()))
                await self._answer(message, info)
            case _ if message.id is not None:
                await self._refuse(message, NOT_FOUND, f"no such method: {message.method}")

    def _relay(self, message: ExecMessage) -> Relay | None:
        return self._relays.get(read_params(ProcessParams, message).process_id)

    async def _start(
        self, message: ExecMessage, kind: type[StartParams], tasks: anyio.abc.TaskGroup
    ) -> None:
        try:
            params = kind.model_validate(message.params)
        except ValidationError as exc:
            place = ".".join(str(part) for part in exc.errors()[0]["loc"])
            await self._refuse(message, INVALID, f"bad parameters of {message.method}: {place}")
            return
        process_id = params.process_id
        if process_id <= self._last_id:
            raise ProtocolBroken("process numbers must rise")
        self._last_id = process_id
        if self._server.running >= self._server.limits.max_processes:
            await self._refuse(message, BUSY, "too many processes")
            return
        self._server.running += 1
        relay = self._relays[process_id] = Relay(process_id, self._send)
        running = run_child(self._server.machine, params)
        tasks.start_soon(self._run, message, process_id, relay, running)

    async def _run(
        self,
        message: ExecMessage,
        process_id: int,
        relay: Relay,
        running: AbstractAsyncContextManager[Child],
    ) -> None:
        try:
            async with running as child:
                relay.child = child
                size = child.size if isinstance(child, ServedChild) else None
                await self._answer(message, ProcessStartResponse(pid=child.pid, size=size))
                await relay.run(child)
            assert child.returncode is not None
            await relay.send_end(child.returncode)
        except (OSError, ValueError) as exc:
            # A ValueError: a NUL character in an argument, a `=` in the name of a variable.
            number, text = (exc.errno, exc.strerror) if isinstance(exc, OSError) else (None, None)
            await self._refuse(message, START_FAILED, text or str(exc), {"errno": number})
        finally:
            del self._relays[process_id]
            self._server.running -= 1

    async def _answer(self, message: ExecMessage, result: object) -> None:
        await self._send(render(id=message.id, result=result))

    async def _refuse(
        self, message: ExecMessage, code: int, text: str, data: JsonObject | None = None
    ) -> None:
        error = ErrorObject(code=code, message=text, data=data)
        await self._send(render(id=message.id, error=error))

    async def _send(self, frame: str | bytes) -> None:
        try:
            with anyio.fail_after(self._server.limits.send_s):
                await self._socket.send(frame)
        except (ConnectionClosed, TimeoutError):
            # Whoever does not listen any more takes its processes along.
            self._scope.cancel()
            await anyio.lowlevel.checkpoint()
