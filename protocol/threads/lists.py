"""thread/list, thread/loaded/list, thread/read: which threads there are."""

from typing import Literal

from typing_extensions import TypeAliasType

from protocol.model import UInt32, WireModel, experimental
from protocol.thread_ids import ThreadIdParam
from protocol.threads.thread import Thread, ThreadReadState
from protocol.values import SortDirection

ThreadListCwdFilter = TypeAliasType("ThreadListCwdFilter", str | list[str])
"""One folder or several; a thread's working directory must equal one of them."""


ThreadSortKey = TypeAliasType(
    "ThreadSortKey", Literal["created_at", "updated_at", "recency_at", "section_position"]
)
"""What a list of threads is sorted by."""


ThreadSourceKind = TypeAliasType(
    "ThreadSourceKind",
    Literal[
        "cli",
        "vscode",
        "exec",
        "appServer",
        "subAgent",
        "subAgentReview",
        "subAgentCompact",
        "subAgentThreadSpawn",
        "subAgentOther",
        "unknown",
    ],
)
"""A kind of `source` to filter threads by."""


class ThreadListParams(WireModel):
    """Page through stored threads, newest first."""

    include_attached_threads: bool = experimental(False)
    """With `searchTerm`: find threads that are parts of others too."""
    current_account_only: bool = False
    cursor: str | None = None
    """Opaque, from the page before; null starts at the newest."""
    limit: UInt32 | None = None
    """Threads a page, at most 100; null means 25."""
    excluded_thread_ids: list[ThreadIdParam] | None = None
    """At most 100; send the same with each page."""
    sort_key: ThreadSortKey | None = None
    """Null means `created_at`."""
    sort_direction: SortDirection | None = None
    """Null means `desc`."""
    model_providers: list[str] | None = None
    """Only these providers; null or empty means all."""
    source_kinds: list[ThreadSourceKind] | None = None
    """Only these kinds of source; null or empty means all."""
    originators: list[str] | None = None
    """Only threads that these clients created; null or empty means all."""
    archived: bool | None = None
    """True lists the archived threads, and only them."""
    section_id: str | None = None
    """Leave out for all sections; null means threads that are in none."""
    project_id: str | None = experimental()
    """Leave out for all projects; null means threads that are in none."""
    cwd: ThreadListCwdFilter | None = None
    use_state_db_only: bool = False
    """Trust the index; do not look into the logs."""
    search_term: str | None = None
    """Case-insensitive part of the name or the preview."""
    parent_thread_id: ThreadIdParam | None = experimental()
    """Only direct sub-agents of it; not together with `ancestorThreadId`."""
    ancestor_thread_id: ThreadIdParam | None = experimental()
    """Only sub-agents below it, at any depth."""
    attached_to_thread_id: ThreadIdParam | None = experimental()
    """Only threads that are parts of it; not together with the two above."""


class ThreadListResponse(WireModel):
    """One page; `nextCursor` is null at the end."""

    data: list[Thread]
    read_states: dict[str, ThreadReadState] | None = experimental()
    """By thread id, for the threads that have one; null when none are kept."""
    next_cursor: str | None = None
    backwards_cursor: str | None = None
    """Opaque; as `cursor` with the opposite `sortDirection`. Null when the page is empty."""


class ThreadLoadedListParams(WireModel):
    """Page through the ids of threads in memory."""

    cursor: str | None = None
    limit: UInt32 | None = None
    """Ids a page; null means all."""


class ThreadLoadedListResponse(WireModel):
    """Ids in the order in which the threads were loaded."""

    data: list[str]
    next_cursor: str | None = None


class ThreadReadParams(WireModel):
    """Look at a thread without loading it."""

    thread_id: ThreadIdParam
    include_turns: bool = False
    """Long histories come cut; `thread/turns/list` has them in pages."""


class ThreadReadResponse(WireModel):
    """The thread; its turns too if they were asked for."""

    thread: Thread
    read_state: ThreadReadState | None = experimental()
    """Null when none is kept."""
