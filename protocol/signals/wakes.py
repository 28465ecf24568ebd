"""thread/wake/*: signals whose source is the server itself: a time, the end of a process, a file.

An extension of ours: the reference has none of it.
Source: docs/wakes.md.
"""

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from protocol.model import Int64, OpenEnum, UInt32, Variant, WireModel
from protocol.signals.delivery import SignalError, WakeMode, WakeState
from protocol.thread_ids import ThreadIdParam

MAX_NOTE_BYTES = 1024
MIN_EVERY_S = 60
MAX_EVERY_S = 366 * 24 * 3600
MAX_PATH_BYTES = 4096


class TimerWakeSource(Variant, extra="forbid"):
    """A time of the server's clock: `atMs` once, or `everySecs` again and again."""

    type: Literal["timer"] = "timer"
    at_ms: Int64 | None = None
    """Unix milliseconds; with `everySecs` the first time, which is one interval away if null."""
    every_secs: UInt32 | None = None
    """Seconds between two wakes, at least 60; null wakes once."""
    until_ms: Int64 | None = None
    """With `everySecs`: nothing wakes after this; Unix milliseconds."""


class ProcessWakeSource(Variant, extra="forbid"):
    """The end of a command that the thread has left running."""

    type: Literal["process"] = "process"
    process_id: str
    """From `thread/backgroundTerminals/list`."""


FileWakeChange = TypeAliasType("FileWakeChange", Literal["created", "modified", "deleted", "any"])
"""What has to happen to a file."""


class FileWakeSource(Variant, extra="forbid"):
    """A change of one file or folder on the machine of the server."""

    type: Literal["file"] = "file"
    path: str
    """Absolute; a folder changes when something directly in it comes or goes."""
    change: FileWakeChange


WakeSource = TypeAliasType(
    "WakeSource",
    Annotated[TimerWakeSource | ProcessWakeSource | FileWakeSource, Field(discriminator="type")],
)
"""Which event wakes a thread."""


class Wake(WireModel):
    """One wake of a thread. Times are Unix milliseconds."""

    id: str
    thread_id: str
    source: WakeSource
    note: str
    mode: WakeMode
    state: WakeState
    set_at_ms: Int64
    changed_at_ms: Int64
    next_at_ms: Int64 | None = None
    """When a timer wakes; null for others, and once it is over."""
    signal_id: str | None = None
    """Id of its last signal, of the source `app-server wake`: `signal/read` has the receipt."""
    error: SignalError | None = None
    """Why it was cancelled, or is lost."""


class ThreadWakeSetParams(WireModel):
    """Have a thread woken by an event."""

    thread_id: ThreadIdParam
    source: WakeSource
    note: str = ""
    """What the model reads of it; at most 1 KiB of UTF-8."""
    mode: WakeMode = "wake"


class ThreadWakeSetResponse(WireModel):
    """The wake, armed and on disk."""

    wake: Wake


class ThreadWakeListParams(WireModel):
    """Page through wakes, newest first."""

    thread_id: ThreadIdParam | None = None
    """Null lists those of all threads."""
    state: WakeState | None = None
    cursor: str | None = None
    """Opaque, from `nextCursor` of the page before."""
    limit: UInt32 | None = None
    """Wakes a page; null lets the server choose, 0 counts as 1."""


class ThreadWakeListResponse(WireModel):
    """One page; `next_cursor` is null at the end."""

    data: list[Wake]
    next_cursor: str | None = None


class ThreadWakeCancelParams(WireModel):
    """Cancel a wake; a second time it changes nothing."""

    thread_id: ThreadIdParam
    wake_id: str


class ThreadWakeCancelResponse(WireModel):
    """The wake, its state `cancelled`."""

    wake: Wake


class ThreadWakeChangedNotification(WireModel):
    """A wake has come further."""

    thread_id: str
    wake_id: str
    state: OpenEnum[Literal["armed", "fired", "delivered", "cancelled", "lost"]]
    at_ms: Int64
    """When, Unix milliseconds."""
    signal_id: str | None = None
    error: SignalError | None = None
