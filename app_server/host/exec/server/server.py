"""The exec server: runs processes for the clients that connect to it.

Whoever connects may run anything this user may. So web pages are refused, a token is compared
where one is set, other users of the machine are refused where none is, and a client that goes takes
its processes with it.
Source: docs/environments.md.
"""

import hmac
import http
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

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
    INVALID,
    MAX_FRAME_BYTES,
    NOT_FOUND,
    START_FAILED,
    VERSION,
    ProtocolBroken,
    parse,
    read_params,
    render,
    unpack,
)
from app_server.host.exec.server.children import ServedChild, open_tunnel
from app_server.host.exec.server.commands import run_command
from app_server.host.exec.server.files import read_file, run_patch
from app_server.host.exec.server.relay import Child, Relay
from app_server.host.processes import LocalProcesses
from app_server.permissions.sandbox.roots import MachinePaths, read_machine_paths
from app_server.runtime.counted_warnings import warn_counted
from app_server.runtime.http.listening import AcceptedSockets, CountedConnection
from app_server.runtime.http.peer_user import refusal_of_stranger
from app_server.runtime.launch import Launch
from protocol.exec.files import FileOpenParams, PatchStartParams
from protocol.exec.processes import (
    CommandStartParams,
    ConnectionOpenParams,
    ExecEnvironmentInfoResponse,
    ExecInitializeParams,
    ExecInitializeResponse,
    ExecMessage,
    ProcessCreditParams,
    ProcessParams,
    ProcessStartParams,
    ProcessStartResponse,
)
from protocol.jsonrpc.errors import ErrorObject
from protocol.model import JsonObject

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
