"""Begins turns: in the log first, then in the slot, then, once the caller says so, in a task."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import anyio.abc

from app_server.sessions.settings import of_review, of_turn
from app_server.sessions.surroundings.surroundings import ThreadSurroundings
from app_server.sessions.turn.factory import TurnFactory
from app_server.sessions.turn.mentions import InputMentions
from app_server.sessions.turn.parts import ThreadParts
from app_server.sessions.turn.records import start_of_turn, user_message_item
from app_server.sessions.turn.runner import TurnRunner
from app_server.turns.model.prompt.user_input import TurnInput
from app_server.turns.run import TurnOptions, TurnRun
from protocol.log.rollout import QueuePaused, Record, Settings, SubmissionQueued, TurnStarted
from protocol.turns.code_review import ReviewTarget
from protocol.turns.items import UserMessageThreadItem


def already_begun() -> None:
    """Let nothing run: the turn that input went to was begun by somebody else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStarter:
    """Begins the turns of one loaded thread; its callers hold `TurnSlot.reserve` and it is idle."""

    parts: ThreadParts
    factory: TurnFactory
    runner: TurnRunner
    surroundings: ThreadSurroundings
    mentions: InputMentions
    switch_plugins: Callable[[Settings], None]
    """Has the thread go without what its settings say."""
    tasks: anyio.abc.TaskGroup
    """Owns the turns."""

    async def start(
        self,
        user_input: TurnInput,
        settings: Settings,
        options: TurnOptions,
        submission: SubmissionQueued | None = None,
    ) -> tuple[str, Callable[[], None]]:
        """Begin a turn; `submission` leaves the queue in the same write.

        Gives its id and what lets it run.

        Raises:
            OSError: the disk refused; nothing was accepted.
        """
        self.switch_plugins(settings)
        surroundings = await self.surroundings.news(of_turn(settings))
        user_input = await self.surroundings.skills.with_named(user_input)
        turn_id, at_ms = self.parts.clock.new_id(), self.parts.clock.now_ms()
        user_message = user_message_item(user_input, self.parts.clock, at_ms)
        await self.parts.thread.append(
            *start_of_turn(
                self.parts.thread.state,
                TurnStarted(at_ms=at_ms, turn_id=turn_id),
                settings,
                user_input,
                user_message,
                submission,
                surroundings,
            )
        )
        run = self.factory.make(turn_id, options)
        run.given = user_input.items
        run.needed_servers = self.surroundings.skills.needed_servers(user_input)
        run.named = self.mentions.named_by(user_input)
        begin = self._occupy(run, user_message)
        self.parts.hooks.input_taken(self.parts.thread.id, turn_id, user_input.content)
        return turn_id, begin

    async def start_compaction(self) -> Callable[[], None]:
        """Begin a turn that compacts; gives what lets it run.

        Raises:
            OSError: the disk refused; nothing was begun.
        """
        run = self.factory.make(await self._write_start(), TurnOptions())
        run.work, run.kind = run.compact, "compact"
        return self._occupy(run, None)

    async def start_review(
        self, target: ReviewTarget, settings: Settings
    ) -> tuple[str, Callable[[], None]]:
        """Begin a turn that reviews code; `settings` are the thread's, as far as they are allowed.

        Gives its id and what lets it run.

        Raises:
            OSError: the disk refused; nothing was begun.
        """
        reviewed = of_review(settings, self.factory.settings.review_model)
        surroundings = self.surroundings.all_of(reviewed)
        turn_id = await self._write_start()
        begin = self._occupy(self.factory.make_review(turn_id, target, surroundings), None)
        self.parts.thread.state.turn_settings = reviewed
        return turn_id, begin

    async def start_user_command(
        self, work: Callable[[str], Awaitable[None]]
    ) -> Callable[[], None]:
        """Begin a turn that runs a command of the user, and asks no model; gives what lets it run.

        `work` is called with the id of the turn.

        Raises:
            OSError: the disk refused; nothing was begun.
        """
        turn_id = await self._write_start()
        run = self.factory.make(turn_id, TurnOptions())
        run.work = partial(work, turn_id)
        return self._occupy(run, None)

    async def _write_start(self) -> str:
        """Write down a turn that nobody said anything in; gives its id."""
        turn_id, at_ms = self.parts.clock.new_id(), self.parts.clock.now_ms()
        records: list[Record] = [TurnStarted(at_ms=at_ms, turn_id=turn_id)]
        if self.parts.thread.state.queue.paused:
            # The pause outlives such a turn.
            records.append(QueuePaused(at_ms=at_ms))
        await self.parts.thread.append(*records)
        return turn_id

    def _occupy(
        self, run: TurnRun, user_message: UserMessageThreadItem | None
    ) -> Callable[[], None]:
        self.parts.slot.fill(run)
        settings = self.parts.thread.state.settings
        if (tier := run.options.service_tier) is not None:
            settings = settings.model_copy(update={"service_tier": tier})
        self.parts.thread.state.turn_settings = of_turn(settings)
        self.parts.goals.turn_begins()

        def begin() -> None:
            self.tasks.start_soon(self.runner.run, run, user_message)

        return begin
