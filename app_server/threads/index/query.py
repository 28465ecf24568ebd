"""Questions to the list of threads, and its answers. No I/O."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from app_server.threads.index.rows import ThreadRow

SortKey: TypeAlias = Literal["created_at_ms", "updated_at_ms", "recency_at_ms", "section_rank"]


@dataclass(frozen=True, slots=True)
class Within:
    """Where threads are filed: in one place, or (None) in none of the places that there are."""

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
