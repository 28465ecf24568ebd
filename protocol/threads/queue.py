"""thread/queue/*: input that waits until a thread is idle."""

from protocol.model import UInt32, WireModel
from protocol.thread_ids import ThreadIdParam
from protocol.turns.items import UserInput
from protocol.turns.turn import Turn


class ThreadQueueAddParams(WireModel):
    """Keep input until the thread is idle; it then starts a turn."""

    thread_id: ThreadIdParam
    input: list[UserInput]
    client_user_message_id: str
    """Chosen by the client, for the user message that comes of it."""
    responsesapi_client_metadata: dict[str, str] | None = None
    """Goes to the model's API with this input."""


class QueuedSubmission(WireModel):
    """Input that waits until the thread is idle."""

    id: str
    input: list[UserInput]
    client_user_message_id: str
    responsesapi_client_metadata: dict[str, str] | None = None
    """Stays with the input for as long as it waits."""


class ThreadQueueAddResponse(WireModel):
    """The input as it was queued."""

    queued_submission: QueuedSubmission


class ThreadQueueDeleteParams(WireModel):
    """Take an input out of a thread's queue."""

    thread_id: ThreadIdParam
    queued_submission_id: str


class ThreadQueueDeleteResponse(WireModel):
    """Whether the input was still in the queue."""

    deleted: bool


class ThreadQueueListParams(WireModel):
    """Page through a thread's queue."""

    thread_id: ThreadIdParam
    cursor: str | None = None
    limit: UInt32 | None = None
    """Inputs a page; null lets the server choose."""


class ThreadQueueListResponse(WireModel):
    """One page of queued inputs."""

    data: list[QueuedSubmission]
    next_cursor: str | None = None
    """Null at the end."""


class ThreadQueueReorderParams(WireModel):
    """Put a thread's queue into another order."""

    thread_id: ThreadIdParam
    queued_submission_ids: list[str]
    """In the new order."""


class ThreadQueueReorderResponse(WireModel):
    """Nothing."""


class ThreadQueueStartParams(WireModel):
    """Start a turn with a queued input; the thread must be idle."""

    thread_id: ThreadIdParam
    queued_submission_id: str | None = None
    """Null takes the first in the queue."""


class ThreadQueueStartResponse(WireModel):
    """The turn that took the input."""

    turn: Turn


class ThreadQueueUpdateParams(WireModel):
    """Change a queued input; its ids and its place stay."""

    thread_id: ThreadIdParam
    queued_submission_id: str
    input: list[UserInput]
    responsesapi_client_metadata: dict[str, str] | None = None
    """Replaces what the input has; absent or empty keeps it."""


class ThreadQueueUpdateResponse(WireModel):
    """The input after the change."""

    queued_submission: QueuedSubmission


class ThreadQueueChangedNotification(WireModel):
    """A thread's queue changed: read it again with `thread/queue/list`."""

    thread_id: str
