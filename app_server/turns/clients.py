"""The clients of a thread: what they are sent, and what they are asked.

Source: docs/wire.md, "Turns".
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from io import StringIO
from typing import Literal, Protocol, TypeAlias

from app_server.mcp.servers.server import ServerNews
from app_server.threads.log.state import TurnState
from protocol.contract.methods import METHOD_OF
from protocol.host.environments import EnvironmentConnectionNotification
from protocol.integrations.mcp import (
    McpServerStatusUpdatedNotification,
    McpServerToolsChangedNotification,
)
from protocol.jsonrpc.envelope import RepeatedNotifications
from protocol.model import UnknownVariant, WireModel
from protocol.server.lifecycle import WarningNotification
from protocol.threads.notifications import ThreadStatusChangedNotification
from protocol.threads.queue import ThreadQueueChangedNotification
from protocol.threads.thread import ThreadStatus
from protocol.turns.items import (
    AgentMessageDeltaNotification,
    AgentMessageThreadItem,
    ItemCompletedNotification,
    ItemStartedNotification,
    KnownThreadItem,
    PlanDeltaNotification,
    PlanThreadItem,
    ReasoningSummaryPartAddedNotification,
    ReasoningSummaryTextDeltaNotification,
    ReasoningTextDeltaNotification,
    ReasoningThreadItem,
    ThreadItem,
)
from protocol.turns.notifications import (
    ErrorNotification,
    TurnCompletedNotification,
    TurnStartedNotification,
)
from protocol.turns.turn import Turn, TurnError

TurnEnd: TypeAlias = Literal["completed", "interrupted", "failed"]


class ClientPort(Protocol):
    """The clients of all threads; the hub has them."""

    def emit(
        self,
        thread_id: str,
        *events: WireModel,
        method: str | None = None,
        more: Sequence[str] = (),
    ) -> None:
        """Send the subscribers of a thread events of one type.

        `method` is for types that serve several. `more` are pieces of text which came with the only
        event, a delta, and are sent as events of their own.
        """

    def emit_repeated(self, thread_id: str, events: RepeatedNotifications) -> None:
        """Send the subscribers of a thread events that those of other threads are sent too."""

    def broadcast(self, event: WireModel) -> None:
        """Send every client an event; never waits."""

    async def ask(
        self, thread_id: str, method: str, params: WireModel
    ) -> tuple[WireModel | None, str | None]:
        """Send a request to the subscribers of a thread; return the first answer and its client.

        The answer is None where a client refused; the client is known by its name. Cancelling
        withdraws the request.
        """

    def can_ask(self, thread_id: str, method: str, params: WireModel) -> bool:
        """Whether any subscriber of a thread could be asked this."""

    def has_subscribers(self, thread_id: str) -> bool:
        """Whether any client is subscribed to the thread."""

    @property
    def is_crowded(self) -> bool:
        """Whether so many messages were queued that the sender should `yield_to_loop`."""

    async def yield_to_loop(self) -> None:
        """Yield to the event loop, so that queued messages are sent and other tasks run."""

    def open_stream(self, thread_id: str) -> None:
        """Begin to number and keep what the subscribers of a thread are sent."""

    def close_stream(self, thread_id: str) -> None:
        """Stop to number and keep, as the thread leaves memory."""


Texts: TypeAlias = defaultdict[tuple[str, int], StringIO]
"""By the member that they belong to, and the index in it.

A list of pieces would take fifty bytes and more for each, however short it is.
"""


class OpenItems:
    """Items that clients were sent the beginning of and not the end, as far as they were sent."""

    __slots__ = ("_items",)

    def __init__(self) -> None:
        self._items: dict[str, tuple[KnownThreadItem, Texts]] = {}

    def end(self, item_id: str) -> None:
        """Take an item off that no event ends: it is in the log, or will not be."""
        self._items.pop(item_id, None)

    def follow(self, event: WireModel, more: Sequence[str] = ()) -> None:
        """Follow what clients are sent: items that begin and end, and the texts between."""
        match event:
            case AgentMessageDeltaNotification() | PlanDeltaNotification():
                self._add(event.item_id, "text", 0, "".join((event.delta, *more)))
            case ReasoningTextDeltaNotification():
                self._add(event.item_id, "content", event.content_index, event.delta)
            case ReasoningSummaryTextDeltaNotification():
                self._add(event.item_id, "summary", event.summary_index, event.delta)
            case ReasoningSummaryPartAddedNotification():
                self._add(event.item_id, "summary", event.summary_index, "")
            case ItemStartedNotification(item=item) if not isinstance(item, UnknownVariant):
                # The item will change; what clients know of it changes by what they are sent.
                self._items[item.id] = item.model_copy(), defaultdict(StringIO)
            case ItemCompletedNotification(item=item) if not isinstance(item, UnknownVariant):
                self.end(item.id)
            case TurnCompletedNotification():
                self._items.clear()

    def _add(self, item_id: str, member: str, index: int, text: str) -> None:
        known = self._items.get(item_id)
        # What has no place among the parts comes with the finished item.
        if known is not None and index >= 0:
            known[1][member, index].write(text)

    def snapshot(self) -> list[ThreadItem]:
        """Give the items with their texts so far."""
        return [_with_texts(item, pieces) for item, pieces in self._items.values()]


def _with_texts(item: KnownThreadItem, texts: Texts) -> ThreadItem:
    match item:
        case AgentMessageThreadItem() | PlanThreadItem():
            return item.model_copy(update={"text": _text(texts, "text", 0)})
        case ReasoningThreadItem():
            members = {"summary": _parts(texts, "summary"), "content": _parts(texts, "content")}
            return item.model_copy(update=members)
    return item


def _parts(texts: Texts, member: str) -> list[str]:
    """Give the texts of a member; indexes that were left out are empty."""
    length = max((index + 1 for name, index in texts if name == member), default=0)
    return [_text(texts, member, index) for index in range(length)]


def _text(texts: Texts, member: str, index: int) -> str:
    written = texts.get((member, index))
    return "" if written is None else written.getvalue()


def _step_events(
    thread_id: str, steps: Iterable[ServerNews], sign_in_again: Collection[str]
) -> list[McpServerStatusUpdatedNotification]:
    return [
        McpServerStatusUpdatedNotification(
            thread_id=thread_id,
            name=one.name,
            status=one.step,
            error=one.error,
            failure_reason="reauthenticationRequired" if one.name in sign_in_again else None,
        )
        for one in steps
        if one.step != "toolsChanged"
    ]


@lru_cache(maxsize=16)
def _repeated_steps(steps: tuple[ServerNews, ...]) -> RepeatedNotifications:
    method = METHOD_OF[McpServerStatusUpdatedNotification.__name__]
    return RepeatedNotifications(method, *_step_events("", steps, ()))


class ThreadClients:
    """The clients of one loaded thread.

    Events of MCP servers, and warnings, wait until the thread itself has been announced.
    """

    def __init__(self, port: ClientPort, thread_id: str) -> None:
        self.port = port
        self._thread_id = thread_id
        self._waiting: list[tuple[WireModel, str | None]] | None = []
        self.open_items = OpenItems()

    # Any event, and any question.

    def emit(
        self, event: WireModel, method: str | None = None, *, more: Sequence[str] = ()
    ) -> None:
        """Send the subscribers an event; see ClientPort.emit."""
        self.open_items.follow(event, more)
        self.port.emit(self._thread_id, event, method=method, more=more)

    async def ask(self, method: str, params: WireModel) -> tuple[WireModel | None, str | None]:
        """Send the subscribers a request; see ClientPort.ask."""
        return await self.port.ask(self._thread_id, method, params)

    def can_ask(self, method: str, params: WireModel) -> bool:
        """Whether any subscriber could be asked this."""
        return self.port.can_ask(self._thread_id, method, params)

    @property
    def has_subscribers(self) -> bool:
        """Whether any client is subscribed to the thread."""
        return self.port.has_subscribers(self._thread_id)

    # Events that wait until the thread was announced.

    @property
    def began(self) -> bool:
        """Whether the thread was announced to a client since it was loaded."""
        return self._waiting is None

    def begin(self) -> None:
        """Send what waited for the announcement of the thread, and from now on what comes."""
        waiting, self._waiting = self._waiting or [], None
        for event, method in waiting:
            self.emit(event, method)

    def server_steps(self, news: Sequence[ServerNews], sign_in_again: Collection[str]) -> None:
        """Send how far starts of MCP servers have come; some of them wait for a new sign-in."""
        steps = tuple([one for one in news if one.step != "toolsChanged"])
        if self._waiting is not None:
            events = _step_events(self._thread_id, steps, sign_in_again)
            self._waiting.extend((event, None) for event in events)
        elif len(steps) > 1 and not any(one.error for one in steps):
            # Threads that share servers are sent the same steps at their start.
            self.port.emit_repeated(self._thread_id, _repeated_steps(steps))
        elif steps:
            self.port.emit(self._thread_id, *_step_events(self._thread_id, steps, sign_in_again))

    def server_tools_changed(self, name: str) -> None:
        """Send that an MCP server says that it has other tools."""
        self._emit_once_announced(
            McpServerToolsChangedNotification(thread_id=self._thread_id, name=name)
        )

    def warning(self, text: str) -> None:
        """Warn of the thread's settings or MCP servers."""
        self._emit_once_announced(WarningNotification(thread_id=self._thread_id, message=text))

    def environment(self, environment_id: str, *, connected: bool) -> None:
        """Send that an environment of the thread's MCP servers came or went."""
        self._emit_once_announced(
            EnvironmentConnectionNotification(
                thread_id=self._thread_id, environment_id=environment_id
            ),
            f"thread/environment/{'connected' if connected else 'disconnected'}",
        )

    def _emit_once_announced(self, event: WireModel, method: str | None = None) -> None:
        if self._waiting is None:
            self.emit(event, method)
        else:
            self._waiting.append((event, method))

    # The thread and its turns.

    def status(self, status: ThreadStatus) -> None:
        """Send every client of the server the thread's status."""
        self.port.broadcast(
            ThreadStatusChangedNotification(thread_id=self._thread_id, status=status)
        )

    def queue_changed(self) -> None:
        """Send that the queue should be read again."""
        self.emit(ThreadQueueChangedNotification(thread_id=self._thread_id))

    def turn_started(self, turn_id: str, started_at_ms: int) -> None:
        """Send that a turn runs."""
        turn = Turn(
            id=turn_id,
            root_turn_id=turn_id,
            items=[],
            items_view="notLoaded",
            status="inProgress",
            started_at=started_at_ms // 1000,
        )
        self.emit(TurnStartedNotification(thread_id=self._thread_id, turn=turn))

    def turn_completed(
        self,
        state: TurnState,
        end: TurnEnd,
        error: TurnError | None,
        last_message: AgentMessageThreadItem | None,
        now_ms: int,
    ) -> None:
        """Send that a turn is over; one that went well shows its last message.

        `now_ms` stands in for an end that the log does not have.
        """
        shown = [last_message] if end == "completed" and last_message is not None else []
        turn = Turn(
            id=state.id,
            root_turn_id=state.id,
            items=list(shown),
            items_view="summary" if shown else "notLoaded",
            status=end,
            error=error,
            started_at=state.started_at_ms // 1000,
            completed_at=(state.completed_at_ms or now_ms) // 1000,
            duration_ms=state.duration_ms,
        )
        self.emit(TurnCompletedNotification(thread_id=self._thread_id, turn=turn))

    def error(self, turn_id: str, error: TurnError, *, will_retry: bool = False) -> None:
        """Send what failed in a turn; without `will_retry` it ends the turn."""
        self.emit(
            ErrorNotification(
                error=error, will_retry=will_retry, thread_id=self._thread_id, turn_id=turn_id
            )
        )
