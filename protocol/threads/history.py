"""thread/{items,turns,timeline}/list, thread/items/read, thread/search*, thread/readState/*.

What a thread holds, read page by page, and how far its user has read.
"""

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from protocol.model import (
    Int64,
    OpenEnum,
    OpenUnion,
    SnakeVariant,
    UInt32,
    UInt64,
    Variant,
    WireModel,
    experimental,
)
from protocol.thread_ids import ThreadIdParam
from protocol.threads.lists import ThreadSourceKind
from protocol.threads.thread import Thread, ThreadReadState
from protocol.turns.items import ThreadItem
from protocol.turns.turn import Turn, TurnError, TurnItemsView, TurnStatus
from protocol.values import SortDirection


class ThreadItemOutputDeferral(WireModel):
    """Outputs to leave out of the page, for `thread/items/read` to fetch."""

    command_execution: bool = experimental(False)
    """Leave out what successful commands printed."""
    mcp_tool_call: bool = experimental(False)
    """Leave out plain-text results of successful calls."""


class ItemThreadItemsListAnchor(Variant):
    """Start beside an item, which is not in the page itself."""

    type: Literal["item"] = "item"
    item_id: str
    """An item of the turn that `turnId` names."""


ThreadItemsListAnchor = TypeAliasType("ThreadItemsListAnchor", ItemThreadItemsListAnchor)
"""A place within a turn to start from."""


ThreadItemsListCursor = TypeAliasType("ThreadItemsListCursor", str | ThreadItemsListAnchor)
"""Where a page starts: at an opaque `nextCursor`, or at an anchor."""


class ThreadItemsListParams(WireModel):
    """Page through a thread's items, oldest first unless asked otherwise."""

    thread_id: ThreadIdParam
    turn_id: str | None = None
    """Only items of this turn; null means all turns."""
    cursor: ThreadItemsListCursor | None = None
    """Null starts over; an anchor needs `turnId` and is for the first page."""
    limit: UInt32 | None = None
    """Items a page; null lets the server choose."""
    sort_direction: SortDirection | None = None
    """Null means `asc`."""
    defer_output: ThreadItemOutputDeferral | None = None
    """Only for a single turn: needs `turnId`."""


class ThreadItemEntry(WireModel):
    """An item with its turn and times."""

    turn_id: str
    item: ThreadItem
    output_deferred: bool = experimental(False)
    """True if the output was left out: get it with `thread/items/read`."""
    started_at_ms: Int64 | None = None
    """Unix milliseconds; null if it was not recorded."""
    completed_at_ms: Int64 | None = None
    """Unix milliseconds; null if it was not recorded."""


class ThreadItemsListResponse(WireModel):
    """One page of items."""

    data: list[ThreadItemEntry]
    next_cursor: str | None = None
    """Opaque; null at the end."""
    backwards_cursor: str | None = None
    """Pass it as `cursor` with the other `sortDirection`; null for an empty page."""


class ThreadItemsReadParams(WireModel):
    """Read some items of one turn in full."""

    thread_id: ThreadIdParam
    turn_id: str
    item_ids: list[str]
    """From 1 to 100."""


class ThreadItemsReadResponse(WireModel):
    """The items, in the order in which they are stored."""

    data: list[ThreadItemEntry]


class ReadThreadReadStateOperation(Variant):
    """Mark the thread as read."""

    type: Literal["read"] = "read"


class UnreadThreadReadStateOperation(Variant):
    """Mark the thread as unread."""

    type: Literal["unread"] = "unread"


ThreadReadStateOperation = TypeAliasType(
    "ThreadReadStateOperation",
    Annotated[
        ReadThreadReadStateOperation | UnreadThreadReadStateOperation, Field(discriminator="type")
    ],
)
"""How to mark a thread."""


class ThreadReadStateUpdateParams(WireModel):
    """Mark a thread as read or unread."""

    thread_id: ThreadIdParam
    operation: ThreadReadStateOperation
    expected_revision: str
    """`revision` of the state that the user saw; any other is a conflict."""


class ThreadReadStateUpdateResponse(WireModel):
    """The state after the change."""

    read_state: ThreadReadState


ThreadSearchSortKey = TypeAliasType(
    "ThreadSearchSortKey", Literal["created_at", "updated_at", "recency_at"]
)
"""What found threads are ordered by."""


class ThreadSearchParams(WireModel):
    """Search the stored threads."""

    include_attached_threads: bool = False
    """Find threads too that are attached to a parent."""
    current_account_only: bool = False
    """Only local history that the current ChatGPT account may see."""
    cursor: str | None = None
    limit: UInt32 | None = None
    """Threads a page; null lets the server choose."""
    sort_key: ThreadSearchSortKey | None = None
    """Null means `created_at`."""
    sort_direction: SortDirection | None = None
    """Null means `desc`: newest first."""
    source_kinds: list[ThreadSourceKind] | None = None
    """Only these kinds of source; null or empty means all."""
    archived: bool | None = None
    """True searches the archived threads, and only them."""
    search_term: str


class ThreadSearchResult(WireModel):
    """A thread that matches."""

    thread: Thread
    snippet: str
    """The text around the match."""


class ThreadSearchResponse(WireModel):
    """One page of matching threads."""

    data: list[ThreadSearchResult]
    next_cursor: str | None = None
    """Opaque; null at the end."""
    backwards_cursor: str | None = None
    """Pass it as `cursor` with the other `sortDirection`; null for an empty page."""


class ThreadSearchOccurrencesParams(WireModel):
    """Find where in one thread's messages a text occurs."""

    thread_id: ThreadIdParam
    search_term: str
    """Taken literally, without regard to case."""
    cursor: str | None = None
    """Opaque, from the page before: same thread, same `searchTerm`."""
    limit: UInt32 | None = None
    """Places a page; null lets the server choose."""


class ThreadSearchTextRange(WireModel):
    """Half-open range of UTF-16 code units."""

    start: UInt32
    end: UInt32


class ThreadSearchOccurrence(WireModel):
    """One place where the text occurs."""

    turn_id: str
    item_id: str
    snippet: str
    snippet_match_range: ThreadSearchTextRange
    """Where in `snippet` the match is."""
    turn_cursor: str
    """Opaque: as `cursor` of `thread/turns/list` it starts at this turn."""


class ThreadSearchOccurrencesResponse(WireModel):
    """One page of places, oldest message first."""

    data: list[ThreadSearchOccurrence]
    next_cursor: str | None = None
    """Null at the end."""


class ThreadTimelineListParams(WireModel):
    """Page through a thread's history in log order, realtime sessions included."""

    thread_id: ThreadIdParam
    cursor: str | None = None
    limit: UInt32 | None = None
    """Entries a page; null lets the server choose."""


class ItemThreadTimelineEntry(Variant):
    """An item of a turn."""

    type: Literal["item"] = "item"
    position: UInt64
    """Orders the entries of a thread."""
    turn_id: str
    item: ThreadItem


class InlineMarkdownBemItemPresentation(Variant):
    """Shown as Markdown within the conversation."""

    type: Literal["inlineMarkdown"] = "inlineMarkdown"


class InlineVisualizationBemItemPresentation(Variant):
    """One visualization of the item, shown within the conversation."""

    type: Literal["inlineVisualization"] = "inlineVisualization"
    index: UInt32
    """Which visualization it is."""


class WholeItemBemItemPresentation(Variant):
    """Shown as the whole item."""

    type: Literal["wholeItem"] = "wholeItem"


ThreadRealtimeBemItemPresentation = TypeAliasType(
    "ThreadRealtimeBemItemPresentation",
    OpenUnion[
        Annotated[
            WholeItemBemItemPresentation
            | InlineMarkdownBemItemPresentation
            | InlineVisualizationBemItemPresentation,
            Field(discriminator="type"),
        ]
    ],
)
"""How an agent's item appears in a realtime conversation."""


class ThreadRealtimeItemBase(Variant):
    """What every realtime item has."""

    id: str
    realtime_session_id: str


class BemItemPromotedThreadRealtimeItem(ThreadRealtimeItemBase):
    """An agent's item was shown in the realtime conversation."""

    type: Literal["bemItemPromoted"] = "bemItemPromoted"
    presentation: ThreadRealtimeBemItemPresentation
    item_id: str = Field(alias="item_id")
    turn_id: str = Field(alias="turn_id")


ThreadRealtimeSessionOutcome = TypeAliasType(
    "ThreadRealtimeSessionOutcome", OpenEnum[Literal["ended", "failed"]]
)
"""How a realtime session came to its end."""


class RealtimeSessionClosedThreadRealtimeItem(ThreadRealtimeItemBase):
    """A realtime session is over."""

    type: Literal["realtimeSessionClosed"] = "realtimeSessionClosed"
    outcome: ThreadRealtimeSessionOutcome


class RealtimeSessionStartedThreadRealtimeItem(ThreadRealtimeItemBase):
    """A realtime session began."""

    type: Literal["realtimeSessionStarted"] = "realtimeSessionStarted"


ThreadRealtimeTranscriptRole = TypeAliasType(
    "ThreadRealtimeTranscriptRole", OpenEnum[Literal["user", "assistant"]]
)
"""Who spoke."""


class TranscriptSegmentThreadRealtimeItem(ThreadRealtimeItemBase):
    """Something that was said."""

    type: Literal["transcriptSegment"] = "transcriptSegment"
    role: ThreadRealtimeTranscriptRole
    text: str


ThreadRealtimeItem = TypeAliasType(
    "ThreadRealtimeItem",
    OpenUnion[
        Annotated[
            RealtimeSessionStartedThreadRealtimeItem
            | TranscriptSegmentThreadRealtimeItem
            | BemItemPromotedThreadRealtimeItem
            | RealtimeSessionClosedThreadRealtimeItem,
            Field(discriminator="type"),
        ]
    ],
)
"""Something that happened in a realtime session."""


class RealtimeThreadTimelineEntry(Variant):
    """An item of a realtime session."""

    type: Literal["realtime"] = "realtime"
    position: UInt64
    item: ThreadRealtimeItem


class TurnCompletedThreadTimelineEntry(SnakeVariant):
    """A turn ended."""

    type: Literal["turnCompleted"] = "turnCompleted"
    position: UInt64
    status: TurnStatus
    error: TurnError | None = None
    completed_at: Int64 | None = None
    """Unix seconds, as `started_at`; null if it was not recorded."""
    duration_ms: Int64 | None = None
    started_at: Int64 | None = None
    turn_id: str


class TurnStartedThreadTimelineEntry(SnakeVariant):
    """A turn began."""

    type: Literal["turnStarted"] = "turnStarted"
    position: UInt64
    started_at: Int64 | None = None
    """Unix seconds; null if it was not recorded."""
    turn_id: str


ThreadTimelineEntry = TypeAliasType(
    "ThreadTimelineEntry",
    OpenUnion[
        Annotated[
            ItemThreadTimelineEntry
            | RealtimeThreadTimelineEntry
            | TurnStartedThreadTimelineEntry
            | TurnCompletedThreadTimelineEntry,
            Field(discriminator="type"),
        ]
    ],
)
"""One item, or the start or end of a turn."""


class ThreadTimelineListResponse(WireModel):
    """One page of the timeline."""

    data: list[ThreadTimelineEntry]
    next_cursor: str | None = None
    """Null at the end."""
    active_realtime_session_at_page_start: str | None = None
    """Id of the session that is open where the page begins; null if none is."""


class ThreadTurnsListParams(WireModel):
    """Page through a thread's turns, newest first unless asked otherwise."""

    thread_id: ThreadIdParam
    cursor: str | None = None
    """Opaque: `nextCursor` of the page before; null starts over."""
    limit: UInt32 | None = None
    """Turns a page; null lets the server choose."""
    sort_direction: SortDirection | None = None
    """Null means `desc`."""
    items_view: TurnItemsView | None = None
    """How much of each turn's items to send; null means `summary`."""


class ThreadTurnsListResponse(WireModel):
    """One page of turns."""

    data: list[Turn]
    next_cursor: str | None = None
    """Null at the end."""
    backwards_cursor: str | None = None
    """Pass it as `cursor` with the other `sortDirection`; its own turn comes again."""
