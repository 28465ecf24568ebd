"""The exec protocol's messages: its begin, processes, commands and connections.

Not part of the app-server's own wire, and not in its schema.
Source: docs/environments.md, "The exec protocol".
"""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from protocol.host.environments import EnvironmentShellInfo
from protocol.jsonrpc.errors import ErrorObject
from protocol.log.rollout import StoredProfile
from protocol.model import Json, JsonObject, UInt16, UInt32, WireModel, absent_if_none
from protocol.turns.policy import SandboxPolicy

ProcessNumber: TypeAlias = Annotated[int, Field(ge=1, lt=2**32)]
"""Chosen by the client; never used twice on a connection."""

StreamName: TypeAlias = Literal["stdin", "stdout", "stderr"]


class ExecInitializeParams(WireModel):
    """The first message of a client."""

    protocol_version: int
    client_name: str


class ExecInitializeResponse(WireModel):
    """The exec server speaks that version."""

    protocol_version: int


class ExecEnvironmentInfoResponse(WireModel):
    """What an exec server says about its machine."""

    shell: EnvironmentShellInfo
    cwd: str
    """Its working folder, as an absolute path."""


class ProcessStartParams(WireModel):
    """Start a process."""

    process_id: ProcessNumber
    command: str
    args: list[str] = []
    env: dict[str, str] = Field(default={}, repr=False)
    inherit_env: list[str] = []
    """Variables of the exec server that the process gets too, unless `env` has them."""
    cwd: str | None = None
    """Null means the exec server's working folder."""


class CommandTerminal(WireModel):
    """The size of a command's terminal, in characters."""

    rows: UInt16 = 24
    cols: UInt16 = 80


class CommandVariables(WireModel):
    """Which variables a command has; see `[shell_environment_policy]` of the app-server."""

    inherit: Literal["all", "core", "none"] = "all"
    ignore_default_excludes: bool = False
    exclude: list[str] = []
    set: dict[str, str] = Field(default={}, repr=False)
    include_only: list[str] = []
    credentials: list[str] = []
    """Names that are left out whatever else is said."""
    given: dict[str, str] = Field(default={}, repr=False)


class ExecGrant(WireModel):
    """What a user granted beyond a sandbox policy; paths are absolute."""

    read: list[str] = []
    write: list[str] = []
    network: bool = False


class WorkPolicy(WireModel):
    """What confines some work on the exec server's machine; all paths are absolute."""

    sandbox_policy: SandboxPolicy
    permission_profile: StoredProfile | None = None
    """In the place of the policy, which is the nearest to it."""
    roots: list[str] | None = None
    """Folders that the work belongs to; null means that in which it begins."""
    folder: str | None = None
    """Where the work is done; from a root down to it settings of programs are protected. Null means
    where it begins."""
    granted: ExecGrant = ExecGrant()


class CommandStartParams(WorkPolicy):
    """Run a line in a shell, within what confines it; its output is all stdout."""

    process_id: ProcessNumber
    line: str
    shell: str | None = None
    """Null means that of the exec server's user."""
    login: bool = True
    cwd: str | None = None
    """Relative to the exec server's working folder, which it is when null."""
    terminal: CommandTerminal | None = None
    """Null means pipes, and no input."""
    variables: CommandVariables = CommandVariables()


class ConnectionOpenParams(WireModel):
    """Connect to a server by TCP; what comes is stdout, what goes is stdin."""

    process_id: ProcessNumber
    host: Annotated[str, Field(min_length=1, max_length=255)]
    """An address or a name, as the exec server's machine knows it."""
    port: UInt16


class ProcessStartResponse(WireModel):
    """The process runs, the connection is made, or the file is open."""

    pid: int
    """0 for what is no process."""
    size: int | None = absent_if_none()
    """Of a file, in bytes."""


class ProcessParams(WireModel):
    """What `process/kill` and `process/closeStdin` concern."""

    process_id: ProcessNumber


class ProcessCreditParams(WireModel):
    """Bytes of a stream have been taken: as many more may be sent."""

    process_id: ProcessNumber
    stream: StreamName
    bytes: UInt32


class ProcessExitedParams(WireModel):
    """The process has ended, and all its output has been sent."""

    process_id: ProcessNumber
    exit_code: int | None
    signal: int | None
    """The signal that ended it; then there is no exit code."""


class ExecMessage(WireModel):
    """Any text frame: a request has `id` and `method`, a notification `method`, an answer `id`."""

    id: int | None = None
    method: str | None = None
    params: JsonObject = {}
    result: Json = None
    error: ErrorObject | None = None
