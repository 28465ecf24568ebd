"""The inbox of a loaded thread: signals that it has received, or could take.

Knows: the log of a thread, and the slot that orders everything a thread accepts.
Does not know: the ledger, how a turn runs.
Source: docs/signals.md, "Order".
"""

from collections.abc import Sequence
from dataclasses import dataclass

from app_server.models.prompt.user_input import TurnInput
from app_server.sessions.turn.turn import InputWork, ThreadTurns, Turn
from app_server.turns.context import ThreadContext
from protocol.log.rollout import (
    HistoryAppended,
    InputQueued,
    SignalMark,
    SignalRecalled,
)
from protocol.model import JsonObject


@dataclass(frozen=True, slots=True)
class InboxMessage:
    """One message, as the model will see it."""

    mark: SignalMark
    item: JsonObject
    sender: str
    """Messages of one source and sender keep their order."""
    wakes: bool = False
    steers: bool = False
    """Whether a turn that runs takes it, although it wakes."""


@dataclass(frozen=True, slots=True)
class Reception:
    """Signals that the thread took."""

    taken: Sequence[InboxMessage]
    woken: Turn | None = None
    """The turn that they begin; `Turn.run_soon` must follow."""


def without_own_turn(messages: Sequence[InboxMessage]) -> list[InboxMessage]:
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


@dataclass(frozen=True, slots=True)
class Inbox:
    """The signals that enter one loaded thread."""

    context: ThreadContext
    turns: ThreadTurns

    async def receive(self, messages: Sequence[InboxMessage]) -> Reception:
        """Take in messages, as far as that is possible now.

        An idle thread takes all, and begins one turn if any of them wakes. A running turn takes
        those that need no turn of their own, but never one ahead of another of its sender. When
        this returns, what was taken is on disk.

        Raises:
            SessionClosed: nothing was taken.
            OSError: the disk refused; nothing was taken.
        """
        async with self.context.slot.reserve():
            if self.context.slot.turn is not None:
                return await self._into_turn(messages)
            items = [message.item for message in messages]
            if any(message.wakes for message in messages):
                marks = [
                    message.mark.model_copy(update={"woke": message.wakes}) for message in messages
                ]
                settings = self.context.log.state.settings
                woken = await self.turns.begin(
                    InputWork(TurnInput((), items, signals=marks), settings)
                )
                return Reception(messages, woken)
            marks = [message.mark for message in messages]
            at_ms = self.context.clock.now_ms()
            await self.context.log.append(HistoryAppended(at_ms=at_ms, items=items, signals=marks))
            return Reception(messages)

    async def _into_turn(self, messages: Sequence[InboxMessage]) -> Reception:
        taken = without_own_turn(messages)
        at_ms = self.context.clock.now_ms()
        await self.context.log.append(
            *(
                InputQueued(
                    at_ms=at_ms,
                    input_id=message.mark.item_id,
                    items=[message.item],
                    signal=message.mark,
                    steers=message.steers or None,
                )
                for message in taken
            )
        )
        return Reception(taken)

    async def withdraw(self, source: str, signal_id: str) -> bool:
        """Take a signal back; False when a model has seen it, or is being asked with it.

        Raises:
            SessionClosed
            OSError: the disk refused; the signal is still there.
        """
        async with self.context.slot.changing():
            place = self.context.log.state.signals.find((source, signal_id))
            if place is None or place.stage not in ("queued", "visible"):
                return False
            if place.stage == "visible" and self.context.slot.awaits_model:
                return False
            at_ms = self.context.clock.now_ms()
            await self.context.log.append(SignalRecalled(at_ms=at_ms, source=source, id=signal_id))
            return True
