"""thread/compact*, thread/prepareApprovedPlan: what the model's context is cut down to."""

from protocol.model import WireModel
from protocol.thread_ids import ThreadIdParam


class ThreadCompactStartParams(WireModel):
    """Compact a thread's history, in a turn of its own."""

    thread_id: ThreadIdParam


class ThreadCompactStartResponse(WireModel):
    """Nothing: the work shows as a turn with a `contextCompaction` item."""


class ThreadPrepareApprovedPlanParams(WireModel):
    """Get an approved plan ready for the first turn of a fresh thread."""

    thread_id: ThreadIdParam
    markdown: str
    """The plan itself."""
    attachment_path: str | None = None
    """Absolute path of the server's copy of the plan, if there is one."""


class ThreadPrepareApprovedPlanResponse(WireModel):
    """What to begin the first turn with."""

    prompt: str
    """The first user message; a plan without a readable attachment is in the context."""


class ContextCompactedNotification(WireModel):
    """A thread was compacted; deprecated for the `contextCompaction` item."""

    thread_id: str
    turn_id: str
