"""command/exec*: commands that a client runs to their end.

They belong to the connection that asked for them.
"""

from typing import Literal

from typing_extensions import TypeAliasType

from protocol.model import Int32, Int64, OpenEnum, UInt, UInt16, WireModel, experimental
from protocol.turns.policy import SandboxPolicy


class CommandExecTerminalSize(WireModel):
    """Size of a terminal, in characters."""

    rows: UInt16
    cols: UInt16


class CommandExecParams(WireModel):
    """Run a program outside any thread, in the sandbox; answered when it has ended."""

    command: list[str]
    """Program and arguments; at least one."""
    process_id: str | None = None
    """Chosen by the client, for its connection; streams, terminals and follow-ups need it."""
    tty: bool = False
    """Give it a terminal; implies `streamStdin` and `streamStdoutStderr`."""
    stream_stdin: bool = False
    """Accept `command/exec/write`; needs `processId`."""
    stream_stdout_stderr: bool = False
    """Send output as `command/exec/outputDelta`, not in the response; needs `processId`."""
    output_bytes_cap: UInt | None = None
    """Bytes kept of each stream; null means the server's default."""
    disable_output_cap: bool = False
    """Not together with `outputBytesCap`."""
    disable_timeout: bool = False
    """Not together with `timeoutMs`."""
    timeout_ms: Int64 | None = None
    """Null means the server's default."""
    cwd: str | None = None
    """Null means the server's own."""
    env: dict[str, str | None] | None = None
    """Laid over the server's own; null unsets a variable."""
    size: CommandExecTerminalSize | None = None
    """Only with `tty`."""
    sandbox_policy: SandboxPolicy | None = None
    """Null means the configured one; not together with `permissionProfile`."""
    permission_profile: str | None = experimental()
    """Id of a profile; null means the configured permissions."""


class CommandExecResponse(WireModel):
    """How the program ended, and what it printed."""

    exit_code: Int32
    stdout: str
    """Empty if it was streamed."""
    stderr: str
    """Empty if it was streamed."""


class CommandExecResizeParams(WireModel):
    """Change the size of a running command's terminal."""

    process_id: str
    """The one given to `command/exec`."""
    size: CommandExecTerminalSize


class CommandExecResizeResponse(WireModel):
    """Nothing."""


class CommandExecTerminateParams(WireModel):
    """End a running command."""

    process_id: str
    """The one given to `command/exec`."""


class CommandExecTerminateResponse(WireModel):
    """Nothing: the response to `command/exec` tells how it ended."""


class CommandExecWriteParams(WireModel):
    """Write to the input of a running command, close it, or both."""

    process_id: str
    """The one given to `command/exec`."""
    delta_base64: str | None = None
    close_stdin: bool = False
    """Close it after `deltaBase64`, if there is any."""


class CommandExecWriteResponse(WireModel):
    """Nothing."""


CommandExecOutputStream = TypeAliasType(
    "CommandExecOutputStream", OpenEnum[Literal["stdout", "stderr"]]
)
"""Where output comes from; with a terminal it is all `stdout`."""


class CommandExecOutputDeltaNotification(WireModel):
    """A piece of a command's output."""

    process_id: str
    """The one given to `command/exec`."""
    stream: CommandExecOutputStream
    delta_base64: str
    cap_reached: bool
    """True on the last piece of a stream that `outputBytesCap` cut off."""
