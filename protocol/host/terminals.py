"""thread/shellCommand, thread/backgroundTerminals/*: commands that belong to a thread."""

from protocol.model import Int64, UInt32, UInt64, WireModel
from protocol.thread_ids import ThreadIdParam
from protocol.values import LegacyAppPathString


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
