"""process/*: processes that a client starts and talks to.

They belong to the connection that asked for them.
"""

from typing import Literal

from typing_extensions import TypeAliasType

from protocol.model import Int32, Int64, OpenEnum, UInt, UInt16, WireModel
from protocol.values import AbsolutePathBuf


class ProcessKillParams(WireModel):
    """End a running process."""

    process_handle: str
    """The one given to `process/spawn`."""


class ProcessKillResponse(WireModel):
    """Nothing: the end arrives as `process/exited`."""


class ProcessTerminalSize(WireModel):
    """Size of a terminal, in characters."""

    rows: UInt16
    cols: UInt16


class ProcessResizePtyParams(WireModel):
    """Change the size of a running process's terminal."""

    process_handle: str
    """The one given to `process/spawn`."""
    size: ProcessTerminalSize


class ProcessResizePtyResponse(WireModel):
    """Nothing."""


class ProcessSpawnParams(WireModel):
    """Start a program on the server's machine, outside any sandbox."""

    command: list[str]
    """Program and arguments; at least one."""
    process_handle: str
    """Chosen by the client, for its connection; free again when the process has exited."""
    cwd: AbsolutePathBuf
    tty: bool = False
    """Give it a terminal; implies `streamStdin` and `streamStdoutStderr`."""
    stream_stdin: bool = False
    """Accept `process/writeStdin`."""
    stream_stdout_stderr: bool = False
    """Send output as `process/outputDelta`, not in `process/exited`."""
    output_bytes_cap: UInt | None = None
    """Bytes kept of each stream; absent means the server's default, null no limit."""
    timeout_ms: Int64 | None = None
    """Absent means the server's default, null no limit."""
    env: dict[str, str | None] | None = None
    """Laid over the server's own; null unsets a variable."""
    size: ProcessTerminalSize | None = None
    """Only with `tty`."""


class ProcessSpawnResponse(WireModel):
    """Nothing: the process runs, and its end arrives as `process/exited`."""


class ProcessWriteStdinParams(WireModel):
    """Write to the input of a running process, close it, or both."""

    process_handle: str
    """The one given to `process/spawn`."""
    delta_base64: str | None = None
    close_stdin: bool = False
    """Close it after `deltaBase64`, if there is any."""


class ProcessWriteStdinResponse(WireModel):
    """Nothing."""


class ProcessExitedNotification(WireModel):
    """A process has ended."""

    process_handle: str
    """The one given to `process/spawn`."""
    exit_code: Int32
    output_drain_timed_out: bool | None = None
    """True if the output did not end in time after the exit; some may be missing."""
    stdout: str
    """Empty if it was streamed."""
    stdout_cap_reached: bool
    """Whether the output reached `outputBytesCap`."""
    stderr: str
    """Empty if it was streamed."""
    stderr_cap_reached: bool
    """Whether the output reached `outputBytesCap`."""


ProcessOutputStream = TypeAliasType("ProcessOutputStream", OpenEnum[Literal["stdout", "stderr"]])
"""Where output comes from; with a terminal it is all `stdout`."""


class ProcessOutputDeltaNotification(WireModel):
    """A piece of a process's output."""

    process_handle: str
    """The one given to `process/spawn`."""
    stream: ProcessOutputStream
    delta_base64: str
    cap_reached: bool
    """True on the last piece of a stream that `outputBytesCap` cut off."""
