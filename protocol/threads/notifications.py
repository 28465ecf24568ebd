"""What clients are told of a thread itself; serverRequest/resolved."""

from protocol.jsonrpc.frames import RequestId
from protocol.model import WireModel, absent_if_none
from protocol.threads.thread import Thread, ThreadGoal, ThreadReadState, ThreadStatus


class ServerRequestResolvedNotification(WireModel):
    """A question of ours is settled; clients take it off their screens."""

    thread_id: str
    request_id: RequestId
    """The `id` under which the question was asked."""


class ThreadArchivedNotification(WireModel):
    """A thread was archived."""

    thread_id: str


class ThreadClosedNotification(WireModel):
    """A thread left memory."""

    thread_id: str


class ThreadDeletedNotification(WireModel):
    """A thread was removed for good."""

    thread_id: str


class ThreadNameUpdatedNotification(WireModel):
    """A thread has a new name."""

    thread_id: str
    thread_name: str | None = absent_if_none()
    """Absent when the thread has no name any more."""


class ThreadRevertedNotification(WireModel):
    """A thread lost its last turns; what clients show of them is out of date."""

    thread_id: str


class ThreadStartedNotification(WireModel):
    """A thread was started or loaded."""

    thread: Thread


class ThreadStatusChangedNotification(WireModel):
    """A thread became active, idle, or left memory."""

    thread_id: str
    status: ThreadStatus


class ThreadUnarchivedNotification(WireModel):
    """A thread was brought back."""

    thread_id: str


class ThreadGoalUpdatedNotification(WireModel):
    """A thread's goal is new or has changed."""

    thread_id: str
    turn_id: str | None = None
    """The turn in which it changed, if it was in one."""
    goal: ThreadGoal


class ThreadReadStateChangedNotification(WireModel):
    """How far a thread has been read changed."""

    thread_id: str
    read_state: ThreadReadState
