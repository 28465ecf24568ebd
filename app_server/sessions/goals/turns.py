"""Turns that a thread begins by itself, for its goal. Source: docs/threads.md, "Goals"."""

import logging
from dataclasses import dataclass

from app_server.config.values import ConfigError
from app_server.sessions.errors import SessionClosed
from app_server.sessions.turn.parts import ThreadParts
from app_server.sessions.turn.starter import TurnStarter
from app_server.turns.model.prompt.request import message
from app_server.turns.model.prompt.user_input import TurnInput
from app_server.turns.run import TurnOptions

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GoalTurns:
    """Begins a turn whenever the thread is idle and its goal wants one."""

    parts: ThreadParts
    starter: TurnStarter

    async def go_on(self) -> None:
        """Begin a turn if the thread is idle and its goal wants one; in plan mode goals wait."""
        try:
            async with self.parts.slot.reserve():
                if (
                    self.parts.slot.run is not None
                    or self.parts.thread.state.settings.mode == "plan"
                ):
                    return
                instruction = await self.parts.goals.next_instruction()
                if instruction is None:
                    return
                turn_input = TurnInput((), [message("developer", instruction)])
                settings, _ = await self.parts.allowed_settings()
                _, begin = await self.starter.start(turn_input, settings, TurnOptions())
        except SessionClosed:
            # The goal is on disk, and goes on when the thread is loaded again.
            return
        except (OSError, ConfigError):
            logger.exception("thread %s cannot go on with its goal", self.parts.thread.id)
            return
        begin()
