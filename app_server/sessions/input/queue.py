"""A loaded thread's queue at work: an entry becomes a turn whenever the thread is idle.

Knows: the queue's state, the slot that orders everything a thread accepts.
Does not know: how a turn runs.
Source: docs/queue.md.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from app_server.config.values import ConfigError
from app_server.models.prompt.user_input import TurnInput, user_message
from app_server.sessions.errors import SessionClosed
from app_server.sessions.turn.context import ThreadContext
from app_server.sessions.turn.turn import InputWork, ThreadTurns, Turn
from app_server.threads.log.state.accepted_inputs import digest_of_words
from app_server.threads.log.state.queue import Plan, QueueRefusal, QueueState, Result
from app_server.turns.model_loop import TurnOptions
from protocol.log.rollout import SubmissionQueued

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ThreadQueue:
    """One loaded thread's queue."""

    context: ThreadContext
    turns: ThreadTurns

    @property
    def state(self) -> QueueState:
        """What waits."""
        return self.context.thread.state.queue

    async def change(self, plan: Plan[Result]) -> tuple[Result, bool]:
        """Change the queue; gives what the plan gives, and whether anything changed.

        When this returns, the change is on disk. `Publisher.queue_changed` and `go_on` follow.

        Raises:
            QueueRefusal, SessionClosed
            OSError: the disk refused; nothing was changed.
        """
        async with self.context.slot.changing():
            records, result = plan(self.state)
            if records:
                await self.context.thread.append(*records)
        return result, bool(records)

    async def start(self, submission_id: str | None) -> tuple[str, Callable[[], None]]:
        """Begin a turn with an entry, or with the first one, also while the queue is paused.

        When this returns, the turn is on disk. Gives its id and what lets it begin; that must be
        called, once the caller has been answered.

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
            turn = await self._take(entry)
        return turn.id, partial(self._begin, turn)

    async def go_on(self) -> None:
        """Begin a turn with the next entry, if the thread is idle and the queue is not paused.

        What cannot be begun stays in the queue; the end of a turn, or another entry, tries again.
        """
        try:
            async with self.context.slot.reserve():
                entry = self.state.next
                if entry is None or self.context.slot.turn is not None:
                    return
                turn = await self._take(entry)
        except SessionClosed:
            # What waits is on disk, and goes on when the thread is loaded again.
            pass
        except ConfigError as exc:
            self.context.publisher.warning(f"queued input waits, as nothing may start: {exc}")
        except Exception:
            # Nobody is above this but the server, which goes on.
            logger.exception("the queue of thread %s cannot go on", self.context.thread.id)
        else:
            self._begin(turn)

    async def _take(self, entry: SubmissionQueued) -> Turn:
        settings, replaced = await self.context.allowed_settings()
        client_id, items = entry.client_user_message_id, await user_message(entry.input)
        digest = digest_of_words(self.context.thread.id, client_id, entry.input)
        turn = await self.turns.begin(
            InputWork(TurnInput(entry.input, items, client_id, digest=digest), settings, entry),
            TurnOptions(client_metadata=entry.responsesapi_client_metadata),
        )
        for warning in replaced:
            self.context.publisher.warning(warning)
        return turn

    def _begin(self, turn: Turn) -> None:
        self.context.publisher.queue_changed()
        turn.run_soon()
