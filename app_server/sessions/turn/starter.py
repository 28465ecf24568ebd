"""Begins turns: in the log first, then in the slot, then, once the caller says so, in a task."""

from collections.abc import Awaitable, Callable
from functools import partial

import anyio.abc

from app_server.sessions.settings import of_review, of_turn
from app_server.sessions.surroundings.surroundings import ThreadSurroundings
from app_server.sessions.turn.factory import TurnFactory
from app_server.sessions.turn.mentions import InputMentions
from app_server.sessions.turn.parts import ThreadParts
from app_server.sessions.turn.records import start_of_compaction, start_of_turn, user_message_item
from app_server.sessions.turn.runner import TurnRunner
from app_server.turns.model.prompt.user_input import TurnInput
from app_server.turns.run import TurnOptions, TurnRun
from protocol.items import UserMessageThreadItem
from protocol.rollout import Settings, SubmissionQueued, TurnStarted
from protocol.turns import ReviewTarget


class TurnStarter:
    """Begins the turns of one loaded thread; its callers hold `TurnSlot.reserve` and it is idle."""

    def __init__(
        self,
        parts: ThreadParts,
        factory: TurnFactory,
        runner: TurnRunner,
        surroundings: ThreadSurroundings,
        mentions: InputMentions,
        switch_plugins: Callable[[Settings], None],
        tasks: anyio.abc.TaskGroup,
    ) -> None:
        """Take `switch_plugins`, which has the thread go without what its settings say.

        `tasks` owns the turns.
        """
        self._thread = parts.thread
        self._slot = parts.slot
        self._factory = factory
        self._runner = runner
        self._goals = parts.goals
        self._surroundings = surroundings
        self._mentions = mentions
        self._switch_plugins = switch_plugins
        self._hooks = parts.hooks
        self._clock = parts.clock
        self._tasks = tasks

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
        self._switch_plugins(settings)
        surroundings = await self._surroundings.news(of_turn(settings))
        user_input = await self._surroundings.with_skills(user_input)
        turn_id, at_ms = self._clock.new_id(), self._clock.now_ms()
        user_message = user_message_item(user_input, self._clock, at_ms)
        await self._thread.append(
            *start_of_turn(
                self._thread.state,
                TurnStarted(at_ms=at_ms, turn_id=turn_id),
                settings,
                user_input,
                user_message,
                submission,
                surroundings,
            )
        )
        run = self._factory.make(turn_id, options)
        run.given = user_input.items
        run.needed_servers = self._surroundings.needed_servers(user_input)
        run.named = self._mentions.named_by(user_input)
        begin = self._occupy(run, user_message)
        self._hooks.input_taken(self._thread.id, turn_id, user_input.content)
        return turn_id, begin

    async def start_compaction(self) -> Callable[[], None]:
        """Begin a turn that compacts; gives what lets it run.

        Raises:
            OSError: the disk refused; nothing was begun.
        """
        turn_id = self._clock.new_id()
        started = TurnStarted(at_ms=self._clock.now_ms(), turn_id=turn_id)
        await self._thread.append(*start_of_compaction(self._thread.state, started))
        return self._occupy(self._factory.make(turn_id, TurnOptions(), compacts=True), None)

    async def start_review(
        self, target: ReviewTarget, settings: Settings
    ) -> tuple[str, Callable[[], None]]:
        """Begin a turn that reviews code; `settings` are the thread's, as far as they are allowed.

        Gives its id and what lets it run.

        Raises:
            OSError: the disk refused; nothing was begun.
        """
        turn_id = self._clock.new_id()
        started = TurnStarted(at_ms=self._clock.now_ms(), turn_id=turn_id)
        reviewed = of_review(settings, self._factory.review_model)
        surroundings = self._surroundings.all_of(reviewed)
        await self._thread.append(*start_of_compaction(self._thread.state, started))
        begin = self._occupy(self._factory.make_review(turn_id, target, surroundings), None)
        self._thread.state.turn_settings = reviewed
        return turn_id, begin

    async def start_user_command(
        self, work: Callable[[str], Awaitable[None]]
    ) -> Callable[[], None]:
        """Begin a turn that runs a command of the user, and asks no model; gives what lets it run.

        `work` is called with the id of the turn.

        Raises:
            OSError: the disk refused; nothing was begun.
        """
        turn_id = self._clock.new_id()
        started = TurnStarted(at_ms=self._clock.now_ms(), turn_id=turn_id)
        await self._thread.append(*start_of_compaction(self._thread.state, started))
        run = self._factory.make(turn_id, TurnOptions())
        run.user_command = partial(work, turn_id)
        return self._occupy(run, None)

    def _occupy(
        self, run: TurnRun, user_message: UserMessageThreadItem | None
    ) -> Callable[[], None]:
        self._slot.fill(run)
        settings = self._thread.state.settings
        if (tier := run.options.service_tier) is not None:
            settings = settings.model_copy(update={"service_tier": tier})
        self._thread.state.turn_settings = of_turn(settings)
        self._goals.turn_begins()

        def begin() -> None:
            self._tasks.start_soon(self._runner.run, run, user_message)

        return begin
