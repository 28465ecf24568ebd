"""fs/*, command/exec*, process/*: files and processes on the server's machine.

Also thread/shellCommand and thread/backgroundTerminals/*. What `command/exec` and `process/spawn`
start belongs to the connection that asked for it.
"""

from typing import Literal

from typing_extensions import TypeAliasType

from protocol.model import (
    Int32,
    Int64,
    OpenEnum,
    UInt,
    UInt16,
    UInt32,
    UInt64,
    WireModel,
    experimental,
)
from protocol.thread_ids import ThreadIdParam
from protocol.turns.policy import SandboxPolicy
from protocol.values import AbsolutePathBuf, LegacyAppPathString


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


class FsCopyParams(WireModel):
    """Copy a file, or a directory with all that is in it."""

    source_path: AbsolutePathBuf
    destination_path: AbsolutePathBuf
    recursive: bool = False
    """Needed for directories; ignored for files."""


class FsCopyResponse(WireModel):
    """Nothing."""


class FsCreateDirectoryParams(WireModel):
    """Create a directory."""

    path: AbsolutePathBuf
    recursive: bool | None = None
    """Create missing parents too; null means true."""


class FsCreateDirectoryResponse(WireModel):
    """Nothing."""


class FsGetMetadataParams(WireModel):
    """Ask what is at a path."""

    path: AbsolutePathBuf


class FsGetMetadataResponse(WireModel):
    """What is at the path."""

    is_directory: bool
    """After following a symbolic link."""
    is_file: bool
    """A regular file, after following a symbolic link."""
    is_symlink: bool
    """Whether the path itself is a link."""
    created_at_ms: Int64
    """Unix milliseconds; 0 if not known."""
    modified_at_ms: Int64
    """Unix milliseconds; 0 if not known."""


class FsReadDirectoryParams(WireModel):
    """List what is directly in a directory."""

    path: AbsolutePathBuf


class FsReadDirectoryEntry(WireModel):
    """One file or directory in a directory."""

    file_name: str
    """Without the path of the directory."""
    is_directory: bool
    """After following a symbolic link."""
    is_file: bool


class FsReadDirectoryResponse(WireModel):
    """What is directly in the directory."""

    entries: list[FsReadDirectoryEntry]


class FsReadFileParams(WireModel):
    """Read a whole file."""

    path: AbsolutePathBuf


class FsReadFileResponse(WireModel):
    """The bytes of the file."""

    data_base64: str


class FsRemoveParams(WireModel):
    """Delete a file or a directory."""

    path: AbsolutePathBuf
    recursive: bool | None = None
    """Delete what is in the directory too; null means true."""
    force: bool | None = None
    """Accept that there is nothing at the path; null means true."""


class FsRemoveResponse(WireModel):
    """Nothing."""


class FsUnwatchParams(WireModel):
    """Stop watching a path."""

    watch_id: str
    """The one given to `fs/watch`."""


class FsUnwatchResponse(WireModel):
    """Nothing."""


class FsWatchParams(WireModel):
    """Watch a file or directory: changes arrive as `fs/changed`."""

    watch_id: str
    """Chosen by the client, for its connection."""
    path: AbsolutePathBuf


class FsWatchResponse(WireModel):
    """What is being watched."""

    path: AbsolutePathBuf
    """The canonical form of the path that was given."""


class FsWriteFileParams(WireModel):
    """Write a file."""

    path: AbsolutePathBuf
    data_base64: str
    """All that the file is to hold."""


class FsWriteFileResponse(WireModel):
    """Nothing."""


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


class ThreadBackgroundTerminalsCleanParams(WireModel):
    """End all background terminals of a thread."""

    thread_id: ThreadIdParam


class ThreadBackgroundTerminalsCleanResponse(WireModel):
    """Nothing."""


class ThreadBackgroundTerminalsListParams(WireModel):
    """Page through the background terminals of a loaded thread."""

    thread_id: ThreadIdParam
    cursor: str | None = None
    limit: UInt32 | None = None
    """Terminals a page; null lets the server choose."""


class ThreadBackgroundTerminal(WireModel):
    """A command that goes on running in the background of a thread."""

    item_id: str
    process_id: str
    """The server's own id, for `thread/backgroundTerminals/terminate`."""
    command: str
    cwd: LegacyAppPathString
    os_pid: UInt32 | None = None
    """The operating system's id; null if not known."""
    cpu_percent: float | None = None
    """Null if not known."""
    rss_kb: UInt64 | None = None
    """Resident memory in kilobytes; null if not known."""


class ThreadBackgroundTerminalsListResponse(WireModel):
    """One page of background terminals."""

    data: list[ThreadBackgroundTerminal]
    next_cursor: str | None = None
    """Null at the end."""


class ThreadBackgroundTerminalsTerminateParams(WireModel):
    """End one background terminal."""

    thread_id: ThreadIdParam
    process_id: str
    """From `thread/backgroundTerminals/list`."""


class ThreadBackgroundTerminalsTerminateResponse(WireModel):
    """Whether a process was ended."""

    terminated: bool


class ThreadShellCommandParams(WireModel):
    """Run a shell command for the user in a thread, without a sandbox."""

    thread_id: ThreadIdParam
    command: str
    """A line for the thread's shell: pipes, redirections and quotes work."""
    timeout_ms: Int64 | None = None
    """Not negative; null means one hour, and 0 leaves no time at all."""


class ThreadShellCommandResponse(WireModel):
    """Nothing: the command shows as a `commandExecution` item."""


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


class FsChangedNotification(WireModel):
    """Something changed at a watched path."""

    watch_id: str
    """The one given to `fs/watch`."""
    changed_paths: list[AbsolutePathBuf]


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
