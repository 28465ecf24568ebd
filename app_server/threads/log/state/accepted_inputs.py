"""Inputs that clients named, and the turns that took them: sent again, they begin nothing new.

Source: docs/wire.md, "Sending again".
"""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from protocol.log.rollout import InputAccepted

KEPT = 1024
"""The newest inputs of a thread; what is older counts as new."""

TurnEnding: TypeAlias = Literal["completed", "interrupted", "failed"]


@dataclass(slots=True)
class AcceptedInput:
    """One input of a client."""

    digest: str
    """Of the whole request."""
    turn_id: str
    status: Literal["inProgress"] | TurnEnding = "inProgress"
    """Of the turn that took it."""


@dataclass(slots=True)
class AcceptedInputs:
    """The newest named inputs of one thread, by their names."""

    _inputs: dict[str, AcceptedInput] = field(default_factory=dict)
    _of_open_turn: list[AcceptedInput] = field(default_factory=list)

    def find(self, client_id: str | None) -> AcceptedInput | None:
        """Return what was accepted under a name."""
        return None if client_id is None else self._inputs.get(client_id)

    def note(self, record: InputAccepted) -> None:
        """Remember one more; the oldest is forgotten if there are too many."""
        accepted = AcceptedInput(record.digest, record.turn_id)
        self._inputs[record.client_id] = accepted
        self._of_open_turn.append(accepted)
        if len(self._inputs) > KEPT:
            del self._inputs[next(iter(self._inputs))]

    def turn_over(self, status: TurnEnding) -> None:
        """Remember how the turn ended that took the last ones."""
        for accepted in self._of_open_turn:
            accepted.status = status
        self._of_open_turn.clear()
