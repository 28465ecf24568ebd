"""A loaded thread's queue at work: an entry becomes a turn whenever the thread is idle.

Knows: the queue's state, the slot that orders everything a thread accepts.
Does not know: how a turn runs.
Source: docs/queue.md.
"""

from dataclasses import dataclass

from app_server.sessions.turn.turn import ThreadTurns, Turn
from app_server.threads.log.state.queue import Plan, QueueRefusal, QueueState, Result
from app_server.turns.context import ThreadContext


@dataclass(frozen=True, slots=True)
class ThreadQueue:
    """One loaded thread's queue."""

    context: ThreadContext
    turns: ThreadTurns

    @property
    def state(self) -> QueueState:
        """State of the queue of input."""
        return self.context.log.state.queue

    async def change(self, plan: Plan[Result]) -> tuple[Result, bool]:
        """Change the queue; gives what the plan gives, and whether anything changed.

        When this returns, the change is on disk. `ThreadClients.queue_changed` and
        `ThreadTurns.run_next` follow.

        Raises:
            QueueRefusal, SessionClosed
            OSError: the disk refused; nothing was changed.
        """
        async with self.context.slot.changing():
            records, result = plan(self.state)
            if records:
                await self.context.log.append(*records)
        return result, bool(records)

    async def start(self, submission_id: str | None) -> Turn:
        """Begin a turn with an entry, or with the first one, also while the queue is paused.

        When this returns, the start of the turn is on disk. `ThreadClients.queue_changed` and
        `Turn.run_soon` follow, once the client has been answered.

        Raises:
            QueueRefusal: no such entry, nothing queued, or a turn runs.
            ConfigError: an administrator's demands cannot be read.
            SessionClosed, OSError
        """
        async with self.context.slot.reserve():
            if submission_id is not None:
                entry = self.state.find(submission_id)
            elif self.state.entries:
                entry = self.state.entries[0]
            else:
                raise QueueRefusal("queue is empty", "queueEmpty")
            if self.context.slot.turn is not None:
                raise QueueRefusal("thread already has an active or pending turn", "turnActive")
            return await self.turns.begin_queued(entry)
