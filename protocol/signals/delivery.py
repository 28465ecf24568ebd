"""signal/*: messages from outside, delivered into threads once, with receipts.

An extension of ours: the reference has none of it.
Source: docs/wire.md, "Extensions".
"""

from collections.abc import Sequence
from typing import Literal

from typing_extensions import TypeAliasType

from protocol.model import Int64, Json, OpenEnum, UInt32, Variant, WireModel
from protocol.thread_ids import ThreadIdParam

MAX_NAME_BYTES = 256
"""Of `id`, `source`, `type` and `sender`, each."""
MAX_SUMMARY_BYTES = 4 * 1024
MAX_PAYLOAD_BYTES = 256 * 1024
MAX_WAITING_SIGNALS = 64
"""Signals of one thread that no model has seen yet."""


class Signal(WireModel):
    """One message of an outside sender; `source` and `id` together name it for ever."""

    id: str
    source: str
    """The system that it comes from."""
    type: str
    """What kind of message it is, in the words of its source."""
    sender: str
    """Who in that system wrote it."""
    summary: str
    """What the model reads; at most 4 KiB of UTF-8."""
    payload: Json = None
    """The whole message; at most 256 KiB as JSON. It does not go into the thread."""
    created_at: Int64 | None = None
    """When it was written, Unix seconds."""
    ttl_seconds: UInt32 | None = None
    """How long after `created_at` it may still enter history; null means always."""


class ThreadSignalTarget(Variant, extra="forbid"):
    """One thread by its id."""

    thread_id: str


class DirectorySignalTarget(Variant, extra="forbid"):
    """The thread that was active last in a working directory."""

    cwd: str


class NameSignalTarget(Variant, extra="forbid"):
    """The thread that a user gave a name."""

    name: str


SignalTarget = TypeAliasType(
    "SignalTarget", ThreadSignalTarget | DirectorySignalTarget | NameSignalTarget
)
"""Which thread a signal is for."""

SignalMode = TypeAliasType("SignalMode", Literal["passive", "wake"])
"""`passive` waits for the next model request; `wake` gives an idle thread a turn."""

SignalOnBusy = TypeAliasType("SignalOnBusy", Literal["queue", "steer"])
"""Where a `wake` goes while a turn runs: after that turn, or into its next model request."""

SignalStage = TypeAliasType(
    "SignalStage",
    Literal["accepted", "inHistory", "seen", "answered", "expired", "recalled", "failed"],
)
"""How far a signal has come.

The first four follow each other: it is in the ledger, in the thread's log, in a model request, and
in a turn that has ended. The last three are ends that can come before `seen`.
"""

OPEN_STAGES: Sequence[SignalStage] = ("accepted", "inHistory", "seen")
"""Those that others follow."""

RecipientState = TypeAliasType(
    "RecipientState", OpenEnum[Literal["idle", "active", "notLoaded", "archived", "unknown"]]
)
"""What the thread was when the signal came; the last two refuse it."""


WakeMode = TypeAliasType("WakeMode", Literal["wake", "queue"])
"""`wake` begins a turn, behind the one that runs; `queue` waits for the next model request."""

WakeState = TypeAliasType("WakeState", Literal["armed", "fired", "delivered", "cancelled", "lost"])
"""How far a wake has come.

It waits for its event; the event came, which is on disk; its signal is in the history of the
thread. The last two are other ends: a client or the end of the thread cancelled it, or its process
has gone with its server. A timer with `everySecs` is armed again once it was delivered.
"""


class SignalError(WireModel):
    """Why a signal failed, did not wake its thread, or got no answer from its turn."""

    code: str
    message: str


class SignalReceipt(WireModel):
    """What has become of a signal."""

    signal_id: str
    source: str
    thread_id: str
    stage: SignalStage
    item_id: str | None = None
    """The item in the thread, from `inHistory` on."""
    turn_id: str | None = None
    """The turn whose model saw it, from `seen` on."""
    woken: bool
    """Whether it started a turn."""
    recipient_state: RecipientState
    at: Int64
    """When the stage was reached, Unix seconds."""
    error: SignalError | None = None


class SignalDeliverParams(WireModel):
    """Put a signal into a thread; saying it again changes nothing."""

    signal: Signal
    target: SignalTarget
    mode: SignalMode
    on_busy: SignalOnBusy | None = None
    """Null means `queue`."""
    payload_tool: str | None = None
    """An MCP tool that gives the whole signal when it is called with its `id`; the text for the
    model names it if the thread has that tool. It is no part of what the signal is."""


class SignalDeliverResponse(WireModel):
    """The receipt; the signal is on disk."""

    receipt: SignalReceipt


class SignalReadParams(WireModel):
    """Ask what has become of a signal."""

    source: str
    id: str


class SignalReadResponse(WireModel):
    """The receipt as it is now."""

    receipt: SignalReceipt


class SignalListParams(WireModel):
    """Page through receipts, newest first."""

    thread_id: ThreadIdParam | None = None
    stage: SignalStage | None = None
    cursor: str | None = None
    """Opaque, from `nextCursor` of the page before."""
    limit: UInt32 | None = None
    """Receipts a page; null lets the server choose, 0 counts as 1."""


class SignalListResponse(WireModel):
    """One page; `next_cursor` is null at the end."""

    data: list[SignalReceipt]
    next_cursor: str | None = None


class SignalRecallParams(WireModel):
    """Take a signal back; possible until a model has seen it."""

    source: str
    id: str


class SignalRecallResponse(WireModel):
    """The receipt, its stage `recalled`."""

    receipt: SignalReceipt


class SignalUpdatedNotification(WireModel):
    """A signal has come further."""

    receipt: SignalReceipt
