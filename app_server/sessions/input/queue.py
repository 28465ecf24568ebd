"""A loaded thread's queue at work: an entry becomes a turn whenever the thread is idle.

Knows: the queue's state, the slot that orders everything a thread accepts.
Does not know: how a turn runs.
Source: docs/queue.md.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from app_server.config.values import ConfigError
from app_server.sessions.errors import SessionClosed
from app_server.sessions.turn.parts import ThreadParts
from app_server.sessions.turn.starter import TurnStarter
from app_server.threads.log.state.accepted_inputs import digest_of_words
from app_server.threads.log.state.queue import Plan, QueueRefusal, QueueState, Result
from app_server.turns.model.prompt.user_input import TurnInput, user_message
from app_server.turns.run import TurnOptions
from protocol.log.rollout import SubmissionQueued

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ThreadQueue:
    """One loaded thread's queue."""

    parts: ThreadParts
    starter: TurnStarter

    @property
    def state(self) -> QueueState:
        """What waits."""
        return self.parts.thread.state.queue

    async def change(self, plan: Plan[Result]) -> tuple[Result, bool]:
        """Change the queue; gives what the plan gives, and whether anything changed.

        When this returns, the change is on disk. `Publisher.queue_changed` and `go_on` follow.

        Raises:
            QueueRefusal, SessionClosed
            OSError: the disk refused; nothing was changed.
        """
        async with self.parts.slot.changing():
            records, result = plan(self.state)
            if records:
                await self.parts.thread.append(*records)
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
        async with self.parts.slot.reserve():
            if submission_id is not None:
                entry = self.state.find(submission_id)
            elif self.state.entries:
                entry = self.state.entries[0]
            else:
                raise QueueRefusal("queue is empty", "queueEmpty")
            if self.parts.slot.run is not None:
                raise QueueRefusal("thread already has an active or pending turn", "turnActive")
            turn_id, begin = await self._take(entry)
        return turn_id, lambda: self._begin(begin)

    async def go_on(self) -> None:
        """Begin a turn with the next entry, if the thread is idle and the queue is not paused.

        What cannot be begun stays in the queue; the end of a turn, or another entry, tries again.
        """
        try:
            async with self.parts.slot.reserve():
                entry = self.state.next
                if entry is None or self.parts.slot.run is not None:
                    return
                _, begin = await self._take(entry)
        except SessionClosed:
            # What waits is on disk, and goes on when the thread is loaded again.
            pass
        except ConfigError as exc:
            self.parts.publisher.warning(f"queued input waits, as nothing may start: {exc}")
        except Exception:
            # Nobody is above this but the server, which goes on.
            logger.exception("the queue of thread %s cannot go on", self.parts.thread.id)
        else:
            self._begin(begin)

    async def _take(self, entry: SubmissionQueued) -> tuple[str, Callable[[], None]]:
        settings, replaced = await self.parts.allowed_settings()
        client_id, items = entry.client_user_message_id, await user_message(entry.input)
        digest = digest_of_words(self.parts.thread.id, client_id, entry.input)
        taken = await self.starter.start(
            TurnInput(entry.input, items, client_id, digest=digest),
            settings,
            TurnOptions(client_metadata=entry.responsesapi_client_metadata),
            entry,
        )
        for warning in replaced:
            self.parts.publisher.warning(warning)
        return taken

    def _begin(self, begin: Callable[[], None]) -> None:
        self.parts.publisher.queue_changed()
        begin()
