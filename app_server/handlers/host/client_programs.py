"""Common parts of command/exec and process/*: the programs that a client runs.

Source: docs/tools.md, "Host methods".
"""

import base64
import binascii
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Protocol

from app_server.handlers.serving import RequestContext
from app_server.host.commands.local_commands import CommandLaunch, TerminalSize
from app_server.host.commands.output import Stream
from app_server.host.programs import Program, ProgramOrder, ProgramOutput, ProgramRefused, Programs
from app_server.host.sandbox.wrapped_command import SandboxUnavailable
from app_server.permissions.environment import CREDENTIALS
from app_server.rpc.context import ConnectionId
from app_server.rpc.hub import Hub
from protocol.host.commands import CommandExecParams, CommandExecWriteParams
from protocol.host.processes import ProcessSpawnParams, ProcessWriteStdinParams
from protocol.jsonrpc.errors import RpcError, internal_error, invalid_params, invalid_request
from protocol.model import WireModel

DEFAULT_TIMEOUT_S = 10.0
DEFAULT_CAP = 1024 * 1024
"""Bytes of each stream."""


class Size(Protocol):
    """Of a terminal, as clients give it."""

    rows: int
    cols: int


def program_environment(changes: Mapping[str, str | None] | None) -> dict[str, str]:
    """Lay a client's variables over those of this process, without the server's own credentials.

    Raises:
        RpcError: a name or a value cannot be that of a variable.
    """
    result = {name: value for name, value in os.environ.items() if name not in CREDENTIALS}
    for name, value in (changes or {}).items():
        if not name or "=" in name or "\0" in name:
            raise _wrong("env", "names of variables are not empty and have no `=` and no NUL")
        if value is None:
            result.pop(name, None)
        elif "\0" in value:
            raise _wrong("env", f"the value of `{name}` has a NUL")
        else:
            result[name] = value
    return result


def terminal_size(size: Size | None, *, tty: bool, method: str, of: str) -> TerminalSize | None:
    """Return the size of the terminal that is to be had, None for no terminal.

    Raises:
        RpcError: there is a size and no terminal, or it has no rows or columns.
    """
    if size is None:
        return TerminalSize() if tty else None
    if not tty:
        raise invalid_params(f"{method} size requires tty: true", field="size")
    return checked_size(size, of)


def checked_size(size: Size, of: str) -> TerminalSize:
    """Return a size.

    Raises:
        RpcError: it has no rows or columns.
    """
    if size.rows < 1 or size.cols < 1:
        raise invalid_params(f"{of} size rows and cols must be greater than 0", field="size")
    return TerminalSize(size.rows, size.cols)


def checked_command(command: list[str]) -> list[str]:
    """Return program and arguments.

    Raises:
        RpcError: there is nothing to run.
    """
    if not command:
        raise invalid_request("command must not be empty", "invalidCommand")
    if not command[0] or any("\0" in word for word in command):
        raise _wrong("command", "the program is not empty, and no argument has a NUL")
    return command


def timeout_s(timeout_ms: int | None, method: str) -> float | None:
    """Return a time limit in seconds.

    Raises:
        RpcError: it is negative.
    """
    if timeout_ms is None:
        return None
    if timeout_ms < 0:
        raise invalid_params(
            f"{method} timeoutMs must be non-negative, got {timeout_ms}", field="timeoutMs"
        )
    return timeout_ms / 1000


def input_bytes(delta_base64: str | None, *, close: bool, method: str) -> bytes:
    """Return what is to be written.

    Raises:
        RpcError: it is no base64, or there is nothing to do.
    """
    if delta_base64 is None and not close:
        raise invalid_params(f"{method} requires deltaBase64 or closeStdin", field="deltaBase64")
    try:
        return base64.b64decode(delta_base64 or "", validate=True)
    except (ValueError, binascii.Error) as exc:
        raise invalid_params(f"invalid deltaBase64: {exc}", field="deltaBase64") from exc


def _wrong(field: str, rule: str) -> RpcError:
    return invalid_params(f"Invalid params: `{field}`: {rule}", field=field, rule=rule)


class OutputEvent(Protocol):
    """Makes an event of a piece of output."""

    def __call__(self, *, stream: Stream, delta_base64: str, cap_reached: bool) -> WireModel:
        """`cap_reached`: the bound ends the stream with this piece."""


class ClientPrograms:
    """The programs of one kind; those of a client end with its connection."""

    def __init__(
        self, hub: Hub, method: str, kind: str, name_of_id: str, *, noun: str, max_kept: int
    ) -> None:
        """`kind`, `name_of_id` and `noun` are what errors call programs, their ids, and a spawn.

        `method` runs them. `max_kept`: bytes of a stream that is not sent in events.
        """
        self._hub = hub
        self._running = Programs(kind, name_of_id)
        self._method = method
        self._kind = kind
        self._noun = noun
        self._max_kept = max_kept

    @contextmanager
    def failures(self) -> Iterator[None]:
        """Translate why a program is not started, or does not do what it is asked for."""
        try:
            yield
        except ProgramRefused as exc:
            raise invalid_request(str(exc), "programRefused") from exc
        except SandboxUnavailable as exc:
            raise internal_error(str(exc), "sandboxUnavailable") from exc
        except OSError as exc:
            number = exc.errno or 0
            words = f"{os.strerror(number)} (os error {number})" if number else str(exc)
            raise internal_error(f"failed to spawn {self._noun}: {words}", "spawnFailed") from exc

    def make(
        self,
        client: ConnectionId,
        params: CommandExecParams | ProcessSpawnParams,
        event: OutputEvent,
        *,
        cwd: Callable[[], str],
        cap: int | None,
        timeout_s: Callable[[], float | None],
    ) -> Program:
        """Make a program as a client wants it, without starting it; `cap`: bytes of a stream.

        `cwd` and `timeout_s` may refuse, each in its turn: the first wrong member is named.

        Raises:
            RpcError: command, environment, folder, terminal or time limit makes no sense.
        """
        streams = params.stream_stdout_stderr or params.tty
        if not streams:
            cap = min(self._max_kept, self._max_kept if cap is None else cap)
        order = ProgramOrder(
            kind=self._kind,
            launch=CommandLaunch(
                argv=checked_command(params.command),
                env=program_environment(params.env),
                cwd=cwd(),
                terminal=terminal_size(
                    params.size, tty=params.tty, method=self._method, of=self._kind
                ),
                has_stdin=params.stream_stdin,
                merges_stderr=False,
            ),
            takes_input=params.stream_stdin or params.tty,
            timeout_s=timeout_s(),
        )
        return Program(order, self._output(client, cap, event if streams else None))

    def _output(
        self, client: ConnectionId, cap: int | None, event: OutputEvent | None
    ) -> ProgramOutput:
        """Make an output that sends events to a client, or keeps all."""

        def send(made: OutputEvent, stream: Stream, piece: bytes, cap_reached: bool) -> None:
            encoded = base64.b64encode(piece).decode("ascii")
            event = made(stream=stream, delta_base64=encoded, cap_reached=cap_reached)
            self._hub.notify(client, event)

        on_piece = None if event is None else partial(send, event)
        return ProgramOutput(cap, on_piece, partial(self._hub.connections.waiting_chars, client))

    def entered(
        self, client: ConnectionId, program_id: str | None, program: Program
    ) -> AbstractContextManager[None]:
        """Register a program until the context ends; without an id no request can reach it.

        Raises:
            ProgramRefused: the client has one of this id, or as many as it may.
        """
        self._hub.connections.when_gone(client, self._running.terminate_all)
        return self._running.entered(client, program_id, program)

    def write(
        self,
        context: RequestContext,
        program_id: str,
        params: CommandExecWriteParams | ProcessWriteStdinParams,
    ) -> None:
        """Write to the input of a program, and end the input after that if that is wished.

        Raises:
            RpcError: it is no base64, there is nothing to do, none of this id runs, or it takes no
                input.
        """
        ends = params.close_stdin
        data = input_bytes(params.delta_base64, close=ends, method=context.method)
        with self.failures():
            self._running.find(context.connection_id, program_id).write(data, close=ends)

    def resize(self, client: ConnectionId, program_id: str, size: Size) -> None:
        """Change the size of a program's terminal.

        Raises:
            RpcError: it is no size, or the program has no terminal.
        """
        checked = checked_size(size, self._kind)
        with self.failures():
            self._running.find(client, program_id).resize(checked)

    def terminate(self, client: ConnectionId, program_id: str) -> None:
        """Have a program ended.

        Raises:
            RpcError: none of this id runs.
        """
        with self.failures():
            self._running.find(client, program_id).terminate()
