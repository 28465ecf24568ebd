"""A turn that runs, as requests of clients see it: it can be interrupted and given input."""

from typing import Literal, TypeAlias

import anyio

from app_server.models.prompt.request import INTERRUPTED
from app_server.turns.model_loop import ModelLoop, TurnOptions

TurnKind: TypeAlias = Literal["compact", "review"]
"""The first step of a turn that takes no directions meanwhile."""


class RunningTurn:
    """A turn of a thread, from its start to its end."""

    def __init__(self, turn_id: str, kind: TurnKind | None, loop: ModelLoop) -> None:
        self.id = turn_id
        self.kind = kind
        """None once that step is done."""
        self.loop = loop
        self.scope = anyio.CancelScope()
        """Cancelled by an interrupt."""
        self.interruption = INTERRUPTED
        """What the model is shown of an interrupt."""
        self.is_interrupted = False
        """Whether the user stopped it: queued input then waits for somebody to start it."""
        self.user_was_asked = False
        """Whether a question was put to the user in this turn."""

    @property
    def options(self) -> TurnOptions:
        """Hold for this turn alone; they change when it is steered."""
        return self.loop.options

    def interrupt(self) -> None:
        """Stop the turn for the user; queued input then waits for somebody to start it."""
        self.is_interrupted = True
        self.scope.cancel()
