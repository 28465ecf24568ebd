"""Messages from outside: what a thread is given, and what it could take. No I/O.

Source: docs/signals.md, "Order".
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from protocol.model import JsonObject
from protocol.rollout import SignalMark


@dataclass(frozen=True, slots=True)
class OutsideMessage:
    """One message, as the model will see it."""

    mark: SignalMark
    item: JsonObject
    sender: str
    """Messages of one source and sender keep their order."""
    wakes: bool = False
    steers: bool = False
    """Whether a turn that runs takes it, although it wakes."""


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Reception:
    """What was taken; `begin` lets the turn run that it woke."""

    taken: Sequence[OutsideMessage]
    turn_id: str | None = None
    begin: Callable[[], None] = _nothing


def without_own_turn(messages: Sequence[OutsideMessage]) -> list[OutsideMessage]:
    """Choose what a running turn can take; a sender's messages stay behind the first that waits."""
    waiting: set[tuple[str, str]] = set()
    taken = []
    for message in messages:
        sender = message.mark.source, message.sender
        if sender in waiting or (message.wakes and not message.steers):
            waiting.add(sender)
        else:
            taken.append(message)
    return taken
