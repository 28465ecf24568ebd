"""Items of one turn: announced as they begin, and completed in the log, then for clients.

Source: docs/wire.md, "Turns"; docs/tools.md, "Reviews".
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import anyio

from app_server.runtime.clock import Clock
from app_server.threads.log.live import LiveThread
from app_server.turns.clients import ThreadClients
from protocol.log.rollout import (
    HistoryAppended,
    ItemCompleted,
    ItemEnded,
    ItemLeftRunning,
    Record,
)
from protocol.model import JsonObject
from protocol.turns.items import (
    AgentMessageDeltaNotification,
    AgentMessageThreadItem,
    CommandExecutionThreadItem,
    ItemCompletedNotification,
    ItemStartedNotification,
    KnownThreadItem,
    UserMessageThreadItem,
)


@dataclass(slots=True)
class TurnRecorder:
    """Writes and publishes the items of one turn."""

    log: LiveThread
    turn_id: str
    clients: ThreadClients
    clock: Clock
    has_own_history: bool = field(default=False, init=False)
    """Whether the model sees another history than the thread's."""
    _own_history: list[JsonObject] = field(default_factory=list, init=False)

    @property
    def history(self) -> list[JsonObject]:
        """History that the model sees."""
        return self._own_history if self.has_own_history else self.log.state.history

    @contextmanager
    def own_history(self, history: Sequence[JsonObject]) -> Iterator[None]:
        """Give the model a history of its own in the context, which begins with `history`.

        It is not written to the log. Items are, but for messages: clients are not sent those
        either.
        """
        self.has_own_history, self._own_history = True, list(history)
        try:
            yield
        finally:
            self.has_own_history = False

    @property
    def ids(self) -> dict[str, str]:
        """The members that events of a turn have for their thread and turn."""
        return {"thread_id": self.log.id, "turn_id": self.turn_id}

    def emit_text(self, item_id: str, text: str, more: Sequence[str] = ()) -> None:
        """Send text of a message, and the pieces that came with it as events of their own."""
        if not self.has_own_history:
            delta = AgentMessageDeltaNotification(
                thread_id=self.log.id, turn_id=self.turn_id, item_id=item_id, delta=text
            )
            self.clients.emit(delta, more=more)

    def started(self, item: KnownThreadItem) -> None:
        """Announce an item; `started_at_ms` is set from now on."""
        if self.has_own_history and isinstance(item, AgentMessageThreadItem):
            return
        at_ms = item.started_at_ms = item.started_at_ms or self.clock.now_ms()
        self.clients.emit(ItemStartedNotification(**self.ids, item=item, started_at_ms=at_ms))

    def announce_user_message(self, item: UserMessageThreadItem) -> None:
        """Announce what the user said, which is in the log, as an item that began and ended."""
        self.started(item.model_copy(update={"completed_at_ms": None}))
        self.announce_completed(item)

    def abandoned(self, item_id: str) -> None:
        """Drop an open item that will not complete, so that later subscribers do not see it."""
        self.clients.open_items.end(item_id)

    async def completed(self, item: KnownThreadItem, history: Sequence[JsonObject] = ()) -> None:
        """Write an item and what the model is to remember of it, then announce it.

        Cancelling waits for that: what has ended does not stay open for clients.

        Raises:
            OSError: the disk refused; nothing was announced.
        """
        if self.has_own_history:
            self._own_history.extend(history)
            if isinstance(item, AgentMessageThreadItem):
                return
            history = ()
        item.completed_at_ms = self.clock.now_ms()
        records: list[Record] = [
            ItemCompleted(at_ms=item.completed_at_ms, turn_id=self.turn_id, item=item)
        ]
        if history:
            records.append(HistoryAppended(at_ms=item.completed_at_ms, items=list(history)))
        with anyio.CancelScope(shield=True):
            # The end of the turn syncs what its items leave to the system's write-back.
            await self.log.append(*records, sync=False)
        self.announce_completed(item)

    async def left_running(self, item: CommandExecutionThreadItem) -> None:
        """Write an item that goes on when its turn ends; clients know of it already.

        Raises:
            OSError: the disk refused.
        """
        record = ItemLeftRunning(at_ms=self.clock.now_ms(), turn_id=self.turn_id, item=item)
        await self.log.append(record, sync=False)
        # Who joins now finds it in the log.
        self.clients.open_items.end(item.id)

    async def completed_after_turn(self, item: CommandExecutionThreadItem) -> None:
        """Write and announce the end of an item that was left running, in whichever turn that is.

        Raises:
            OSError: the disk refused; nothing was announced.
        """
        item.completed_at_ms = self.clock.now_ms()
        record = ItemEnded(at_ms=item.completed_at_ms, turn_id=self.turn_id, item=item)
        with anyio.CancelScope(shield=True):
            await self.log.append(record, sync=False)
        self.announce_completed(item)

    def defer_completed(self, item: CommandExecutionThreadItem, *, after_turn: bool) -> None:
        """Announce the end of a command that the disk refused; the next append writes it, too."""
        if self.log.is_abandoned:
            return
        assert item.completed_at_ms is not None
        record = ItemEnded if after_turn else ItemCompleted
        self.log.defer(record(at_ms=item.completed_at_ms, turn_id=self.turn_id, item=item))
        self.announce_completed(item)

    def announce_completed(self, item: KnownThreadItem) -> None:
        """Announce that an item which is in the log will not change any more."""
        assert item.completed_at_ms is not None
        self.clients.emit(
            ItemCompletedNotification(
                item=item,
                thread_id=self.log.id,
                turn_id=self.turn_id,
                completed_at_ms=item.completed_at_ms,
            )
        )

    async def remember(self, *items: JsonObject) -> None:
        """Write what the model is to remember without telling anybody.

        Raises:
            OSError: the disk refused.
        """
        if self.has_own_history:
            self._own_history.extend(items)
        elif items:
            record = HistoryAppended(at_ms=self.clock.now_ms(), items=list(items))
            await self.log.append(record, sync=False)
