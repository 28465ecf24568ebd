"""Inputs that clients named, and the turns that took them: sent again, they begin nothing new.

Source: docs/wire.md, "Sending again".
"""

import hashlib
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from pydantic_core import to_json

from protocol.log.rollout import InputAccepted
from protocol.model import WireModel
from protocol.turns.items import UserInput
from protocol.turns.requests import AdditionalContextEntry, TurnStartParams

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


def digest_of_words(
    thread_id: str,
    client_id: str | None,
    content: Sequence[UserInput],
    context: Mapping[str, AdditionalContextEntry] | None = None,
) -> str | None:
    """Return the digest of a `turn/start` that has an input and no settings; None without a name.

    What is steered or queued has it too, so that one input is accepted once, whichever way it came.
    """
    if not client_id:
        return None
    start = TurnStartParams(
        thread_id=thread_id,
        client_user_message_id=client_id,
        input=list(content),
        additional_context=None if context is None else dict(context),
    )
    return digest_of(start)


def digest_of(params: WireModel, *, without: Set[str] = frozenset()) -> str:
    """Return the SHA-256 of a request's members, in hexadecimal; members `without` do not count.

    Members that are null and members that are missing are the same, and their order is nothing.
    """
    value = params.model_dump(mode="json", by_alias=True, exclude=set(without), exclude_none=True)
    return hashlib.sha256(to_json(_sorted(value))).hexdigest()


def _sorted(value: object) -> object:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_sorted(element) for element in value]
    return value
