"""Turns that a thread begins by itself, for its goal. Source: docs/threads.md, "Goals"."""

import logging
from collections.abc import Awaitable, Callable

from app_server.config.requirements import Requirements
from app_server.config.values import ConfigError
from app_server.sessions.errors import SessionClosed
from app_server.sessions.goals.goals import Goals
from app_server.sessions.managed_policy import with_required
from app_server.sessions.turn.slot import TurnSlot
from app_server.sessions.turn.starter import TurnStarter
from app_server.threads.log.live import LiveThread
from app_server.turns.model.prompt.request import message
from app_server.turns.model.prompt.user_input import TurnInput
from app_server.turns.run import TurnOptions

logger = logging.getLogger(__name__)


class GoalTurns:
    """Begins a turn whenever the thread is idle and its goal wants one."""

    def __init__(
        self,
        thread: LiveThread,
        slot: TurnSlot,
        starter: TurnStarter,
        goals: Goals,
        requirements: Callable[[], Awaitable[Requirements]],
    ) -> None:
        self._thread = thread
        self._slot = slot
        self._starter = starter
        self._goals = goals
        self._requirements = requirements

    async def go_on(self) -> None:
        """Begin a turn if the thread is idle and its goal wants one; in plan mode goals wait."""
        try:
            async with self._slot.reserve():
                if self._slot.run is not None or self._thread.state.settings.mode == "plan":
                    return
                instruction = await self._goals.next_instruction()
                if instruction is None:
                    return
                turn_input = TurnInput((), [message("developer", instruction)])
                settings, _ = with_required(self._thread.state.settings, await self._requirements())
                _, begin = await self._starter.start(turn_input, settings, TurnOptions())
        except SessionClosed:
            # The goal is on disk, and goes on when the thread is loaded again.
            return
        except (OSError, ConfigError):
            logger.exception("thread %s cannot go on with its goal", self._thread.id)
            return
        begin()
