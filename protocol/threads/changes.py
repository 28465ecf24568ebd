"""thread/{archive,unarchive,delete,revert,unsubscribe,inject_items}, thread/*_elicitation."""

from typing import Literal

from typing_extensions import TypeAliasType

from protocol.model import Int64, Json, OpenEnum, WireModel, experimental
from protocol.thread_ids import ThreadIdParam
from protocol.threads.thread import Thread


class ThreadArchiveParams(WireModel):
    """Unload a thread and move it out of the default list."""

    thread_id: ThreadIdParam


class ThreadArchiveResponse(WireModel):
    """Nothing."""


class ThreadDecrementElicitationParams(WireModel):
    """Say that a question to the user outside of this protocol is settled."""

    thread_id: ThreadIdParam


class ThreadDecrementElicitationResponse(WireModel):
    """How many such questions are still open."""

    count: Int64
    paused: bool
    """Timeouts still do not count."""


class ThreadDeleteParams(WireModel):
    """Remove a thread for good."""

    thread_id: ThreadIdParam


class ThreadDeleteResponse(WireModel):
    """Nothing: the thread is gone."""


class ThreadIncrementElicitationParams(WireModel):
    """Say that the user is asked something outside of this protocol: timeouts pause."""

    thread_id: ThreadIdParam


class ThreadIncrementElicitationResponse(WireModel):
    """How many such questions are open now."""

    count: Int64
    paused: bool
    """Timeouts do not count."""


class ThreadInjectItemsParams(WireModel):
    """Append raw Responses API items to what the model sees, without a turn."""

    thread_id: ThreadIdParam
    items: list[Json]
    """At least one; an invalid one refuses them all."""


class ThreadInjectItemsResponse(WireModel):
    """Nothing: the items are in the log."""


class ThreadRevertParams(WireModel):
    """Drop a turn and all after it from the history; files stay as they are."""

    thread_id: ThreadIdParam
    before_turn_id: str
    """The first turn to drop."""


class ThreadRevertResponse(WireModel):
    """The thread without its turns, and where to read those that are left."""

    thread: Thread
    """Its `turns` is empty."""
    turns_backwards_cursor: str | None = None
    """Opaque `cursor` for `thread/turns/list` with `desc`; the turn that it names comes along."""
    items_backwards_cursor: str | None = None
    """Opaque `cursor` for `thread/items/list` with `desc`; the item that it names comes along."""


class ThreadUnarchiveParams(WireModel):
    """Bring an archived thread back into the default list."""

    thread_id: ThreadIdParam


class ThreadUnarchiveResponse(WireModel):
    """The thread, not loaded."""

    thread: Thread


class ThreadUnsubscribeParams(WireModel):
    """Stop hearing of a thread on this connection."""

    thread_id: ThreadIdParam
    unload: bool | None = experimental(extension=True)
    """True lets go of the thread at once, if nobody else listens and nothing runs."""


ThreadUnsubscribeStatus = TypeAliasType(
    "ThreadUnsubscribeStatus", OpenEnum[Literal["notLoaded", "notSubscribed", "unsubscribed"]]
)
"""What became of the caller's subscription."""


class ThreadUnsubscribeResponse(WireModel):
    """What there was to leave."""

    status: ThreadUnsubscribeStatus
    unloaded: bool | None = experimental(absent=True, extension=True)
    """Whether the thread is out of memory, and another process may write it; if that was asked."""
