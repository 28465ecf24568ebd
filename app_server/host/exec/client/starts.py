"""The requests that start work on an exec server, with their parameters. No I/O.

Source: docs/environments.md, "The exec protocol".
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from pydantic import ValidationError

from app_server.host.exec.protocol import MAX_PLAN_BYTES
from app_server.runtime.launch import DEFAULT_READ_LIMIT_BYTES, Launch
from protocol.exec.files import MAX_PATH_CHARS, FileOpenParams, FileProfile, PatchStartParams
from protocol.exec.processes import (
    CommandStartParams,
    CommandTerminal,
    CommandVariables,
    ConnectionOpenParams,
    ProcessStartParams,
    WorkPolicy,
)
from protocol.model import WireModel

PATH_RULE = f"an absolute path of at most {MAX_PATH_CHARS} characters, without a null character"


@dataclass(frozen=True, slots=True)
class Start:
    """Something that runs on another machine for as long as somebody wants it."""

    method: str
    params: Callable[[int], WireModel] = field(repr=False)
    """Takes the number that the connection gives it; raises OSError if they make no sense."""
    read_limit_bytes: int = DEFAULT_READ_LIMIT_BYTES
    """As a Launch has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOrder:
    """A command that is to be run on another machine: its shell, folder and sandbox are there."""

    line: str
    policy: WorkPolicy
    shell: str | None = None
    login: bool = True
    cwd: str | None = None
    tty: bool = False
    variables: CommandVariables = field(default_factory=CommandVariables, repr=False)


def process_start(launch: Launch) -> Start:
    """Start a process."""
    return Start(
        "process/start",
        lambda number: ProcessStartParams(
            process_id=number,
            command=launch.command,
            args=list(launch.args),
            env=dict(launch.env),
            inherit_env=list(launch.inherited),
            cwd=launch.cwd,
        ),
        launch.read_limit_bytes,
    )


def command_start(order: CommandOrder) -> Start:
    """Run a command."""
    return Start(
        "command/start",
        lambda number: CommandStartParams(
            process_id=number,
            line=order.line,
            shell=order.shell,
            login=order.login,
            cwd=order.cwd,
            terminal=CommandTerminal() if order.tty else None,
            variables=order.variables,
            **dict(order.policy),
        ),
    )


def connection_open(host: str, port: int) -> Start:
    """Connect to a server of that machine."""
    return Start(
        "connection/open",
        lambda number: ConnectionOpenParams(process_id=number, host=host, port=port),
    )


def file_open(path: str, policy: WorkPolicy, profile: FileProfile | None = None) -> Start:
    """Read a regular file: its bytes are `stdout`."""
    params = partial(FileOpenParams, path=path, profile=profile, **dict(policy))
    return Start("file/open", _with_path(params))


def patch_start(cwd: str, policy: WorkPolicy) -> Start:
    """Begin a patch, which goes on over `stdin` and `stdout`."""
    params = partial(PatchStartParams, cwd=cwd, **dict(policy))
    return Start("patch/start", _with_path(params), MAX_PLAN_BYTES)


def _with_path(make: Callable[..., WireModel]) -> Callable[[int], WireModel]:
    """Make parameters whose path somebody else has chosen."""

    def params(number: int) -> WireModel:
        try:
            return make(process_id=number)
        except ValidationError as exc:
            raise OSError(f"it is not {PATH_RULE}") from exc

    return params
