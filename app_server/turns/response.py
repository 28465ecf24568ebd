"""One response of a model, event by event: deltas out, finished items into the log.

From top to bottom: patches, shown to clients while the model writes them; messages in plan mode,
which are two items, what the model says and the plan that it proposes; the reader of the whole.
An item of a plan is announced with its first text, so that a message which is nothing but a plan is
one item.
Source: docs/tools.md, "Patches", "Plan mode".
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

import anyio

from app_server.models.interface import (
    CallInputDelta,
    ItemAdded,
    ItemDone,
    LimitsReported,
    ModelEvent,
    ReasoningDelta,
    ResponseCompleted,
    SummaryDelta,
    SummaryPartAdded,
    TextDelta,
)
from app_server.models.proposed_plan import Piece, PlanSplitter, split_plan
from app_server.patch.shown import StreamedPatch
from app_server.turns.recorder import TurnRecorder
from app_server.turns.tools import RequestedCall
from protocol.model import Json, JsonObject, WireModel
from protocol.server.account import RateLimitSnapshot
from protocol.turns.items import (
    AgentMessageThreadItem,
    FileChangePatchUpdatedNotification,
    FindInPageWebSearchAction,
    OpenPageWebSearchAction,
    OtherWebSearchAction,
    PlanDeltaNotification,
    PlanThreadItem,
    ReasoningSummaryPartAddedNotification,
    ReasoningSummaryTextDeltaNotification,
    ReasoningTextDeltaNotification,
    ReasoningThreadItem,
    SearchWebSearchAction,
    WebSearchAction,
    WebSearchThreadItem,
)
from protocol.turns.response_items import MessagePhase
from protocol.turns.turn import TokenUsageBreakdown

INTERVAL_S = 0.5
"""Between two notifications of one patch; the last one does not wait."""


@dataclass(slots=True)
class PatchProgress:
    """Shows each patch with its first file, then at intervals, and when it is complete."""

    recorder: TurnRecorder
    clock: Callable[[], float] = anyio.current_time
    _open: "dict[str | None, _Open]" = field(default_factory=dict, init=False)
    """By the id of the model's item."""

    def begin(self, item_id: str | None, item: JsonObject) -> None:
        """Begin a call of a tool that takes plain text; calls of other tools are passed over."""
        call_id = item.get("call_id")
        if item.get("name") == "apply_patch" and isinstance(call_id, str) and call_id:
            self._open[item_id] = _Open(call_id)

    def take(self, event: CallInputDelta) -> None:
        """Take more of a call's text."""
        call = self._open.get(event.item_id)
        if call is None or not call.patch.feed(event.delta):
            return
        call.is_shown = False
        if self.clock() >= call.not_before:
            self._show(call)

    def finish(self, item_id: str | None) -> None:
        """Show what clients have not seen of a call that is complete."""
        call = self._open.pop(item_id, None)
        if call is not None and not call.is_shown:
            self._show(call)

    def _show(self, call: "_Open") -> None:
        call.is_shown = True
        call.not_before = self.clock() + INTERVAL_S
        self.recorder.clients.emit(
            FileChangePatchUpdatedNotification(
                **self.recorder.ids, item_id=call.id, changes=call.patch.changes()
            )
        )


@dataclass(slots=True)
class _Open:
    id: str
    patch: StreamedPatch = field(default_factory=StreamedPatch)
    is_shown: bool = True
    not_before: float = float("-inf")


@dataclass(slots=True)
class TurnPlans:
    """The plans that one turn proposes."""

    recorder: TurnRecorder
    _count: int = field(default=0, init=False)

    def message(self, message: AgentMessageThreadItem) -> "PlanMessage":
        """Begin a message that is not announced yet."""
        return PlanMessage(self, self.recorder, message)

    def new_plan(self) -> PlanThreadItem:
        """Make an item for one more plan."""
        self._count += 1
        suffix = "" if self._count == 1 else f"-{self._count}"
        return PlanThreadItem(id=f"{self.recorder.turn_id}-plan{suffix}", text="")


@dataclass(slots=True)
class PlanMessage:
    """One message, while it arrives."""

    plans: TurnPlans
    recorder: TurnRecorder
    message: AgentMessageThreadItem
    _plan: PlanThreadItem | None = None
    _splitter: PlanSplitter = field(default_factory=PlanSplitter)
    _blank: str = ""
    """Of the message, before anything that is to be seen."""

    def take(self, delta: str) -> None:
        """Take more text."""
        for piece in self._splitter.feed(delta):
            self._emit(piece)

    async def finish(self, text: str, raw: JsonObject) -> AgentMessageThreadItem | None:
        """Complete the items with the whole text; returns the message unless all of it is a plan.

        Raises:
            OSError: the disk refused.
        """
        for piece in self._splitter.finish():
            self._emit(piece)
        said, planned = split_plan(text)
        history = [raw]
        if planned is not None:
            plan = self._began_plan()
            plan.text = planned
            await self.recorder.completed(plan, history)
            history = []
        elif self._plan is not None:
            self.recorder.abandoned(self._plan.id)
        if not said.strip() and planned is not None:
            return None
        message = self._began_message()
        message.text = said
        await self.recorder.completed(message, history)
        return message

    def abandon(self) -> None:
        """Abandon items that will not be completed."""
        for item in (self.message, self._plan):
            if item is not None and item.started_at_ms is not None:
                self.recorder.abandoned(item.id)

    def _emit(self, piece: Piece) -> None:
        if piece.part == "plan":
            plan = PlanDeltaNotification(
                **self.recorder.ids, item_id=self._began_plan().id, delta=piece.text
            )
            self.recorder.clients.emit(plan)
            return
        text, self._blank = self._blank + piece.text, ""
        if self.message.started_at_ms is None and not text.strip():
            self._blank = text
            return
        message = self._began_message()
        self.recorder.emit_text(message.id, text)

    def _began_message(self) -> AgentMessageThreadItem:
        if self.message.started_at_ms is None:
            self.recorder.started(self.message)
        return self.message

    def _began_plan(self) -> PlanThreadItem:
        if self._plan is None:
            self._plan = self.plans.new_plan()
            self.recorder.started(self._plan)
        return self._plan


OpenItem = TypeVar("OpenItem", AgentMessageThreadItem, ReasoningThreadItem, WebSearchThreadItem)

KEPT = (
    "image_generation_call",
    "compaction",
    "compaction_summary",
    "context_compaction",
    "tool_search_output",
    "agent_message",
    "additional_tools",
)
"""Further kinds of items that get into the history. All others are left out, as calls of tools that
nobody offered: they would want an output that nobody can give."""

PHASES = ("commentary", "partial_answer", "final_answer")


@dataclass(slots=True)
class ResponseReader:
    """Reads one response; afterwards `calls` holds what the model wants to have called."""

    recorder: TurnRecorder
    plans: TurnPlans | None
    """Takes plans out of messages, in plan mode."""
    patches: PatchProgress | None
    """Shows patches that are not finished."""
    calls: list[RequestedCall] = field(default_factory=list, init=False)
    usage: TokenUsageBreakdown | None = field(default=None, init=False)
    limits: Sequence[RateLimitSnapshot] = field(default=(), init=False)
    last_message: AgentMessageThreadItem | None = field(default=None, init=False)
    _planning: dict[str, PlanMessage] = field(default_factory=dict, init=False)
    _open: dict[str, AgentMessageThreadItem | ReasoningThreadItem | WebSearchThreadItem] = field(
        default_factory=dict, init=False
    )
    _unnamed: str | None = field(default=None, init=False)
    """The id of an open item that the model gave none."""

    async def take(self, batch: Sequence[ModelEvent]) -> None:
        """Take events that came together: texts go out at once, the rest is waited for.

        Raises:
            OSError: the disk refused.
        """
        at = 0
        while at < len(batch):
            event = batch[at]
            at += 1
            match event:
                case TextDelta():
                    pieces = [event.delta]
                    while at < len(batch) and isinstance(more := batch[at], TextDelta):
                        if more.item_id != event.item_id:
                            break
                        pieces.append(more.delta)
                        at += 1
                    self._emit_text(self._message(event.item_id).id, pieces)
                case ItemAdded():
                    self._begin(event.item)
                case ItemDone():
                    # It gets into the log and out to clients, or neither.
                    with anyio.CancelScope(shield=True):
                        await self._finish(event.item)
                case SummaryPartAdded() | SummaryDelta() | ReasoningDelta():
                    self._emit_reasoning(event)
                case CallInputDelta():
                    if self.patches is not None:
                        self.patches.take(event)
                case LimitsReported():
                    self.limits = event.limits
                case ResponseCompleted():
                    self.usage = event.usage

    def close(self) -> None:
        """Abandon items that the model has begun and will not complete."""
        for item_id in self._open:
            if (planning := self._planning.get(item_id)) is not None:
                planning.abandon()
            else:
                self.recorder.abandoned(item_id)
        self._open.clear()

    def _emit_reasoning(self, event: SummaryPartAdded | SummaryDelta | ReasoningDelta) -> None:
        ids, index = (
            {**self.recorder.ids, "item_id": self._reasoning(event.item_id).id},
            event.index,
        )
        piece: WireModel
        match event:
            case SummaryPartAdded():
                piece = ReasoningSummaryPartAddedNotification(**ids, summary_index=index)
            case SummaryDelta(delta=text):
                piece = ReasoningSummaryTextDeltaNotification(
                    **ids, delta=text, summary_index=index
                )
            case ReasoningDelta(delta=text):
                piece = ReasoningTextDeltaNotification(**ids, delta=text, content_index=index)
        self.recorder.clients.emit(piece)

    def _emit_text(self, item_id: str, pieces: Sequence[str]) -> None:
        if (planning := self._planning.get(item_id)) is not None:
            for piece in pieces:
                planning.take(piece)
            return
        self.recorder.emit_text(item_id, pieces[0], pieces[1:])

    def _begin(self, item: JsonObject) -> None:
        item_id = _id_of(item)
        match item["type"]:
            case "message":
                self._message(item_id, new=True)
            case "reasoning":
                self._reasoning(item_id, new=True)
            case "web_search_call":
                self._announce(search_item(self._name(item_id), item))
            case "custom_tool_call" if self.patches is not None:
                self.patches.begin(item_id, item)

    async def _finish(self, item: JsonObject) -> None:
        item_id = _id_of(item)
        match item["type"]:
            case "message":
                message = self._message(item_id, done=True)
                phase = item.get("phase")
                message.phase = cast(MessagePhase, phase) if phase in PHASES else None
                text = "".join(texts_of(item.get("content")))
                if (planning := self._planning.get(message.id)) is not None:
                    self.last_message = await planning.finish(text, item) or self.last_message
                else:
                    message.text = text
                    await self.recorder.completed(message, [item])
                    self.last_message = message
                del self._open[message.id]
            case "reasoning":
                reasoning = self._reasoning(item_id, done=True)
                reasoning.summary = texts_of(item.get("summary"))
                reasoning.content = texts_of(item.get("content"))
                await self.recorder.completed(reasoning, [item])
                del self._open[reasoning.id]
            case "web_search_call":
                await self._finish_search(item_id, item)
            case "function_call" | "custom_tool_call" | "tool_search_call" | "local_shell_call":
                if self.patches is not None:
                    self.patches.finish(item_id)
                await self.recorder.remember(item)
                self.calls.append(RequestedCall.of(item, self.recorder.clock.new_id()))
            case kind if kind in KEPT:
                await self.recorder.remember(item)

    async def _finish_search(self, item_id: str | None, item: JsonObject) -> None:
        begun = self._find(WebSearchThreadItem, item_id, new=False, done=True)
        search = search_item(self._name(item_id) if begun is None else begun.id, item)
        if begun is None:
            self._announce(search)
        else:
            search.started_at_ms = begun.started_at_ms
        await self.recorder.completed(search, [item])
        del self._open[search.id]

    def _message(
        self, item_id: str | None, *, new: bool = False, done: bool = False
    ) -> AgentMessageThreadItem:
        known = self._find(AgentMessageThreadItem, item_id, new=new, done=done)
        if known is not None:
            return known
        message = AgentMessageThreadItem(id=self._name(item_id), text="")
        if self.plans is None:
            return self._announce(message)
        self._open[message.id] = message
        self._planning[message.id] = self.plans.message(message)
        return message

    def _reasoning(
        self, item_id: str | None, *, new: bool = False, done: bool = False
    ) -> ReasoningThreadItem:
        known = self._find(ReasoningThreadItem, item_id, new=new, done=done)
        return known or self._announce(ReasoningThreadItem(id=self._name(item_id)))

    def _find(
        self, kind: type[OpenItem], item_id: str | None, *, new: bool, done: bool
    ) -> OpenItem | None:
        """Find the open item that an event is about.

        What has no id is about the item that began last; an item that began without an id may end
        with one.
        """
        known = self._open.get(item_id or "")
        if known is None and item_id is None and not new:
            known = next(reversed(self._open.values()), None)
        if known is None and done:
            known = self._open.get(self._unnamed or "")
        return known if isinstance(known, kind) else None

    def _name(self, item_id: str | None) -> str:
        if item_id is None:
            item_id = self._unnamed = self.recorder.clock.new_id()
        return item_id

    def _announce(self, item: OpenItem) -> OpenItem:
        self._open[item.id] = item
        self.recorder.started(item)
        return item


def _id_of(item: JsonObject) -> str | None:
    item_id = item.get("id")
    return item_id if isinstance(item_id, str) and item_id else None


def texts_of(parts: Json) -> list[str]:
    """Return the texts of a content, in order; parts of other kinds are left out."""
    if not isinstance(parts, list):
        return []
    return [
        part["text"]
        for part in parts
        if isinstance(part, dict) and isinstance(part.get("text"), str)
    ]


def search_item(item_id: str, raw: JsonObject) -> WebSearchThreadItem:
    """Make the item of a `web_search_call`; what is not known of it yet is empty."""
    given = raw.get("action")
    action = _action(given if isinstance(given, dict) else {})
    return WebSearchThreadItem(id=item_id, query=_words(action), action=action)


def _action(action: JsonObject) -> WebSearchAction:
    url = _text(action.get("url"))
    match action.get("type"):
        case "search":
            queries = action.get("queries")
            texts = (
                [each for each in queries if isinstance(each, str)]
                if (isinstance(queries, list))
                else None
            )
            return SearchWebSearchAction(query=_text(action.get("query")), queries=texts)
        case "open_page":
            return OpenPageWebSearchAction(url=url)
        case "find_in_page":
            return FindInPageWebSearchAction(url=url, pattern=_text(action.get("pattern")))
    return OtherWebSearchAction()


def _words(action: WebSearchAction) -> str:
    """Say an action in a few words."""
    match action:
        case SearchWebSearchAction():
            return action.query or next(iter(action.queries or ()), "")
        case OpenPageWebSearchAction():
            return action.url or ""
        case FindInPageWebSearchAction():
            places = [f"'{action.pattern}'"] if action.pattern else []
            return " in ".join([*places, *([action.url] if action.url else [])])
    return ""


def _text(value: Json) -> str | None:
    return value if isinstance(value, str) else None
