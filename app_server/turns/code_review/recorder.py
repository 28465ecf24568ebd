"""What a review writes: items of its turn as others, but a history of its own that no log has."""

from collections.abc import Sequence

from app_server.turns.recorder import TurnRecorder
from protocol.model import JsonObject, WireModel
from protocol.turns.items import (
    AgentMessageDeltaNotification,
    AgentMessageThreadItem,
    KnownThreadItem,
)


class ReviewRecorder(TurnRecorder):
    """Writes and publishes what a reviewer does; not what it says, which is shown at the end."""

    has_own_history = True

    def begin(self, history: Sequence[JsonObject]) -> None:
        """Take what the reviewer is shown first."""
        self._history = list(history)

    @property
    def history(self) -> list[JsonObject]:
        """What the reviewer sees."""
        return self._history

    def emit(self, event: WireModel) -> None:
        """Send an event to the thread's listeners, but for texts of messages."""
        if not isinstance(event, AgentMessageDeltaNotification):
            super().emit(event)

    def emit_run(self, first: AgentMessageDeltaNotification, more: Sequence[str]) -> None:
        """Send nothing: these are texts of messages."""

    def started(self, item: KnownThreadItem) -> None:
        """Announce an item, but for messages."""
        if not isinstance(item, AgentMessageThreadItem):
            super().started(item)

    async def completed(self, item: KnownThreadItem, history: Sequence[JsonObject] = ()) -> None:
        """Write and announce an item, but for messages; `history` is the reviewer's alone.

        Raises:
            OSError: the disk refused.
        """
        self._history.extend(history)
        if not isinstance(item, AgentMessageThreadItem):
            await super().completed(item)

    async def remember(self, *items: JsonObject) -> None:
        """Add to what the reviewer sees."""
        self._history.extend(items)
