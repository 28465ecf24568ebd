"""Rows of the index, the query of a list of them, and its page. No I/O."""

from collections import OrderedDict
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias

from pydantic_core import to_json

from app_server.threads.log.state import QueueState, ThreadState
from protocol.cursors import InvalidCursor, parse_cursor, render_cursor
from protocol.log.metadata import MetadataRecord
from protocol.log.rollout import (
    ArchivedChanged,
    NameChanged,
    QueueRecord,
    Record,
    SettingsChanged,
    TurnCompleted,
    TurnsReverted,
    TurnStarted,
)
from protocol.model import Json, WireModel

_SUB_AGENTS = {"review": "subAgentReview", "compact": "subAgentCompact"}
SUB_AGENT_KINDS = (*_SUB_AGENTS.values(), "subAgentThreadSpawn", "subAgentOther")
"""Source: the contract, ThreadSourceKind."""


@dataclass(frozen=True, slots=True)
class ThreadRow:
    """Listed fields of a thread. Times are Unix milliseconds."""

    id: str
    created_at_ms: int
    updated_at_ms: int
    recency_at_ms: int
    name: str | None
    preview: str
    archived: bool
    has_content: bool
    model: str
    model_provider: str
    effort: str | None
    cwd: str
    source: str
    """JSON, as the wire has it."""
    source_kind: str
    originator: str | None
    cli_version: str
    thread_source: str | None
    parent_id: str | None
    project_id: str | None
    section_id: str | None
    section_rank: str | None
    section_entered_at_ms: int | None
    git_info: str | None
    """JSON, as the wire has it; so are the next two."""
    read_state: str | None
    attachments: str
    """Type and key of each."""
    daybreak_enabled: bool | None
    usage: str
    """Sums of its ledger, as `UsageLedger.render` writes them."""

    @classmethod
    def of(cls, state: ThreadState) -> "ThreadRow":
        """Summarize a thread."""
        created, settings, metadata = state.created, state.settings, state.metadata
        attachments = [[a.attachment_type, a.identity_key] for a in metadata.attachments]
        return cls(
            id=state.id,
            created_at_ms=created.at_ms,
            updated_at_ms=state.updated_at_ms,
            recency_at_ms=state.recency_at_ms,
            name=state.name,
            preview=state.preview,
            archived=state.archived,
            has_content=state.has_content,
            model=settings.model,
            model_provider=settings.model_provider,
            effort=settings.effort,
            cwd=settings.cwd,
            source=to_json(created.source).decode(),
            source_kind=_source_kind(created.source),
            originator=created.originator,
            cli_version=created.cli_version,
            thread_source=created.thread_source,
            parent_id=_parent_of(created.source),
            project_id=metadata.project_id,
            section_id=metadata.section_id,
            section_rank=metadata.section_rank,
            section_entered_at_ms=metadata.section_entered_at_ms,
            git_info=_json(metadata.git_info),
            read_state=_json(metadata.read_state),
            attachments=to_json(attachments).decode(),
            daybreak_enabled=metadata.daybreak_enabled,
            usage=state.ledger.render(),
        )


_OF_ROWS = (NameChanged, ArchivedChanged, SettingsChanged, MetadataRecord)
"""Records that only bind members of a state anew, and change more of a row than times."""


def row_after(before: ThreadState, records: Sequence[Record]) -> ThreadRow | None:
    """Return the row of a thread after records; None if they change times and preview at most."""
    changing = [record for record in records if isinstance(record, _OF_ROWS)]
    if not changing:
        return None
    state = copy(before)
    state.metadata = copy(state.metadata)
    state.metadata.attachments = list(state.metadata.attachments)
    for record in changing:
        state.apply(record)
    return ThreadRow.of(state)


def has_work(state: ThreadState) -> bool:
    """Whether a turn is open, or input waits to become one."""
    return state.open_turn is not None or (state.queue.next is not None and not state.archived)


_OF_WORK = (TurnStarted, TurnCompleted, TurnsReverted, ArchivedChanged, QueueRecord)


def work_after(before: ThreadState, records: Sequence[Record]) -> bool | None:
    """Whether a thread has work after records; None: they change nothing of it."""
    if not any(isinstance(record, _OF_WORK) for record in records):
        return None
    known = before.queue
    queue = QueueState(list(known.entries), known.paused, OrderedDict(known.taken), {**known.sizes})
    is_open, archived = before.open_turn is not None, before.archived
    for record in records:
        if isinstance(record, QueueRecord):
            queue.apply(record)
        elif isinstance(record, TurnStarted):
            is_open, queue.paused = True, False
        elif isinstance(record, TurnCompleted | TurnsReverted):
            is_open = False
        elif isinstance(record, ArchivedChanged):
            archived = record.archived
    return is_open or (queue.next is not None and not archived)


def _json(value: WireModel | None) -> str | None:
    return None if value is None else value.model_dump_json()


def _source_kind(source: Json) -> str:
    """Name the kind of program that created a thread."""
    match source:
        case str():
            return source
        case {"subAgent": {"thread_spawn": _}}:
            return "subAgentThreadSpawn"
        case {"subAgent": str(kind)}:
            return _SUB_AGENTS.get(kind, "subAgentOther")
        case {"subAgent": _}:
            return "subAgentOther"
    return "unknown"


def _parent_of(source: Json) -> str | None:
    """Return the thread whose agent started this one."""
    match source:
        case {"subAgent": {"thread_spawn": {"parent_thread_id": str(thread_id)}}}:
            return thread_id
    return None


COLUMNS = [column.name for column in fields(ThreadRow)]
COLUMN_NAMES = ", ".join(COLUMNS)
"""As a statement of SQL has them."""


def row_of(values: Sequence[Any]) -> ThreadRow:
    """Return the row that the values of COLUMNS are."""
    named = dict(zip(COLUMNS, values, strict=True))
    named |= {"archived": bool(named["archived"]), "has_content": bool(named["has_content"])}
    if named["daybreak_enabled"] is not None:
        named["daybreak_enabled"] = bool(named["daybreak_enabled"])
    return ThreadRow(**named)


SortKey: TypeAlias = Literal["created_at_ms", "updated_at_ms", "recency_at_ms", "section_rank"]


@dataclass(frozen=True, slots=True)
class Within:
    """Filter by project or section: one id, or None for threads without one."""

    id: str | None
    known: Sequence[str]
    """All places; threads may still name one that was deleted."""


@dataclass(frozen=True, slots=True)
class ThreadQuery:
    """Which threads, in which order. Empty sequences mean no restriction."""

    limit: int
    cursor: str | None = None
    sort_key: SortKey = "created_at_ms"
    ascending: bool = False
    archived: bool = False
    model_providers: Sequence[str] = ()
    source_kinds: Sequence[str] = ()
    originators: Sequence[str] = ()
    cwds: Sequence[str] = ()
    excluded: Sequence[str] = ()
    section: Within | None = None
    project: Within | None = None
    parent: str | None = None
    """Only threads that this one started."""
    ancestor: str | None = None
    """Only threads that this one started, or that those did, and so on."""
    search: str | None = None
    """Part of the name or the preview, whatever its case."""
    name: str | None = None
    """The whole name."""


@dataclass(frozen=True, slots=True)
class ThreadPage:
    """One page; the cursors continue it in both directions."""

    rows: Sequence[ThreadRow]
    next_cursor: str | None
    backwards_cursor: str | None


def page_cursor(sort_key: SortKey, row: ThreadRow) -> str:
    """Return the cursor at a row of a list in this order."""
    return render_cursor(sort_key, getattr(row, sort_key), row.id)


def parse_page_cursor(sort_key: SortKey, cursor: str) -> tuple[int | str, str]:
    """Return the sorted value and the id of the row at a cursor.

    Raises:
        InvalidCursor: the cursor was not given out by a page of this order.
    """
    match parse_cursor(cursor):
        case [str(key), int(at_ms), str(thread_id)] if key == sort_key and abs(at_ms) < 1 << 63:
            return at_ms, thread_id
        case ["section_rank", str(rank), str(thread_id)] if sort_key == "section_rank":
            return rank, thread_id
    raise InvalidCursor(cursor)
