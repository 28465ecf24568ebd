"""The requests that start work on an exec server, with their parameters. No I/O.

Source: docs/environments.md, "The exec protocol".
"""

from dataclasses import dataclass, field

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


UNNUMBERED = 1
"""The number of a process in the parameters of a start, until the connection gives it its own."""


@dataclass(frozen=True, slots=True)
class Start:
    """Work on another machine that lives as long as its context."""

    method: str
    params: WireModel = field(repr=False)
    """With UNNUMBERED as the number of its process."""
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
    params = ProcessStartParams(
        process_id=UNNUMBERED,
        command=launch.command,
        args=list(launch.args),
        env=dict(launch.env),
        inherit_env=list(launch.inherited),
        cwd=launch.cwd,
    )
    return Start("process/start", params, launch.read_limit_bytes)


def command_start(order: CommandOrder) -> Start:
    """Run a command."""
    params = CommandStartParams(
        process_id=UNNUMBERED,
        line=order.line,
        shell=order.shell,
        login=order.login,
        cwd=order.cwd,
        terminal=CommandTerminal() if order.tty else None,
        variables=order.variables,
        **dict(order.policy),
    )
    return Start("command/start", params)


def connection_open(host: str, port: int) -> Start:
    """Connect to a server of that machine."""
    params = ConnectionOpenParams(process_id=UNNUMBERED, host=host, port=port)
    return Start("connection/open", params)


def file_open(path: str, policy: WorkPolicy, profile: FileProfile | None = None) -> Start:
    """Read a regular file: its bytes are `stdout`.

    Raises:
        OSError: the path, which somebody else has chosen, breaks PATH_RULE.
    """
    try:
        params = FileOpenParams(process_id=UNNUMBERED, path=path, profile=profile, **dict(policy))
    except ValidationError as exc:
        raise OSError(f"it is not {PATH_RULE}") from exc
    return Start("file/open", params)


def patch_start(cwd: str, policy: WorkPolicy) -> Start:
    """Begin a patch, which goes on over `stdin` and `stdout`.

    Raises:
        OSError: the folder, which somebody else has chosen, breaks PATH_RULE.
    """
    try:
        params = PatchStartParams(process_id=UNNUMBERED, cwd=cwd, **dict(policy))
    except ValidationError as exc:
        raise OSError(f"it is not {PATH_RULE}") from exc
    return Start("patch/start", params, MAX_PLAN_BYTES)
