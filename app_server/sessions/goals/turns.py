"""Turns that a thread begins by itself, for its goal. Source: docs/threads.md, "Goals"."""

import logging
from dataclasses import dataclass

from app_server.config.values import ConfigError
from app_server.models.prompt.request import message
from app_server.models.prompt.user_input import TurnInput
from app_server.sessions.errors import SessionClosed
from app_server.sessions.turn.context import ThreadContext
from app_server.sessions.turn.turn import InputWork, ThreadTurns

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GoalTurns:
    """Begins a turn whenever the thread is idle and its goal wants one."""

    context: ThreadContext
    turns: ThreadTurns

    async def go_on(self) -> None:
        """Begin a turn if the thread is idle and its goal wants one; in plan mode goals wait."""
        try:
            async with self.context.slot.reserve():
                if (
                    self.context.slot.turn is not None
                    or self.context.thread.state.settings.mode == "plan"
                ):
                    return
                instruction = await self.context.goals.next_instruction()
                if instruction is None:
                    return
                turn_input = TurnInput((), [message("developer", instruction)])
                settings, _ = await self.context.allowed_settings()
                turn = await self.turns.begin(InputWork(turn_input, settings))
        except SessionClosed:
            # The goal is on disk, and goes on when the thread is loaded again.
            return
        except (OSError, ConfigError):
            logger.exception("thread %s cannot go on with its goal", self.context.thread.id)
            return
        turn.run_soon()
