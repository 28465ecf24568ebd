"""State of a thread: the sum of its records. No I/O.

A live thread and a thread read back from disk go through the same `apply`, so they cannot differ.
"""

import uuid
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from app_server.threads.log.faults import NotARollout
from app_server.threads.log.state.queue import AcceptedInputs, QueueState
from app_server.threads.log.state.signals import SignalStates
from protocol.log.metadata import (
    AttachmentAdded,
    AttachmentRemoved,
    DaybreakChanged,
    GitInfoChanged,
    GoalChanged,
    MemoryModeChanged,
    MetadataRecord,
    ProjectChanged,
    ReadStateChanged,
    SectionChanged,
)
from protocol.log.rollout import (
    ApprovalDecided,
    ArchivedChanged,
    FilesChanging,
    HistoryAppended,
    HistoryCompacted,
    InputAccepted,
    InputQueued,
    InputTaken,
    ItemCompleted,
    ItemEnded,
    ItemLeftRunning,
    NameChanged,
    QueueRecord,
    Record,
    Settings,
    SettingsChanged,
    SignalRecalled,
    ThreadCreated,
    TokensUsed,
    TurnCompleted,
    TurnsReverted,
    TurnStarted,
    parse_record,
)
from protocol.model import JsonObject
from protocol.threads.thread import (
    GitInfo,
    ThreadAttachment,
    ThreadGoal,
    ThreadMemoryMode,
    ThreadReadState,
    ThreadUnreadPosition,
    TurnThreadUnreadPosition,
)
from protocol.turns.items import KnownThreadItem, ThreadItem, UserMessageThreadItem, text_of_input
from protocol.turns.turn import ThreadTokenUsage, TurnError


class KeptItems:
    """Items in their order, as objects, or as their lines until somebody looks at them."""

    __slots__ = ("_entries", "left_out", "size")

    def __init__(self) -> None:
        self._entries: deque[tuple[ThreadItem | bytes, int]] = deque()
        self.left_out = 0
        """Items before these, which left memory."""
        self.size = 0
        """Bytes of their lines."""

    def add(self, item: ThreadItem | bytes, size: int) -> None:
        """Append an item, or the `itemCompleted` line that holds it."""
        self._entries.append((item, size))
        self.size += size

    def replace(self, item: KnownThreadItem, size: int) -> int:
        """Put an item in the place of the one with its id; gives by how much the size grew.

        Does nothing if that left memory, or is there as a line.
        """
        for index, (kept, before) in enumerate(self._entries):
            if getattr(kept, "id", None) == item.id:
                self._entries[index] = item, size
                self.size += size - before
                return size - before
        return 0

    def drop_oldest(self) -> int:
        """Drop the first item and return its size."""
        _, size = self._entries.popleft()
        self.left_out += 1
        self.size -= size
        return size

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[ThreadItem]:
        if any(isinstance(item, bytes) for item, _ in self._entries):
            self._read_lines()
        return iter([item for item, _ in self._entries if not isinstance(item, bytes)])

    def _read_lines(self) -> None:
        read: deque[tuple[ThreadItem | bytes, int]] = deque()
        for item, size in self._entries:
            if not isinstance(item, bytes):
                read.append((item, size))
            elif isinstance(record := parse_record(item), ItemCompleted):
                read.append((record.item, size))
            else:
                # A damaged line is no item for anybody who reads the log as a whole, either.
                self.size -= size
        self._entries = read

    def __eq__(self, other: object) -> bool:
        if isinstance(other, KeptItems) and other.left_out != self.left_out:
            return False
        return isinstance(other, KeptItems | list) and list(self) == list(other)

    def __repr__(self) -> str:
        return f"KeptItems({list(self)!r}, left_out={self.left_out})"


@dataclass(slots=True)
class ThreadMetadata:
    """The sum of a thread's metadata records."""

    git_info: GitInfo | None = None
    daybreak_enabled: bool | None = None
    project_id: str | None = None
    """The project may have been deleted since; then the thread is in none."""
    section_id: str | None = None
    """As with projects."""
    section_rank: str | None = None
    section_entered_at_ms: int | None = None
    memory_mode: ThreadMemoryMode = "enabled"
    read_state: ThreadReadState | None = None
    goal: ThreadGoal | None = None
    attachments: list[ThreadAttachment] = field(default_factory=list)
    """Oldest first."""

    def apply(self, record: MetadataRecord) -> None:
        """Take one more record into account."""
        match record:
            case GitInfoChanged():
                self.git_info = record.git_info
            case DaybreakChanged():
                self.daybreak_enabled = record.enabled
            case ProjectChanged():
                self.project_id = record.project_id
            case SectionChanged():
                self._move(record)
            case MemoryModeChanged():
                self.memory_mode = record.mode
            case ReadStateChanged():
                self.read_state = ThreadReadState(
                    first_unread=record.first_unread, revision=record.revision
                )
            case GoalChanged():
                self.goal = record.goal
            case AttachmentAdded():
                self.attachments.append(record.attachment)
            case AttachmentRemoved():
                self.attachments = [a for a in self.attachments if a.id != record.attachment_id]

    def _move(self, record: SectionChanged) -> None:
        if record.section_id is None:
            self.section_entered_at_ms = None
        elif record.section_id != self.section_id:
            self.section_entered_at_ms = record.at_ms
        self.section_id, self.section_rank = record.section_id, record.rank

    def attachment(self, attachment_type: str, identity_key: str) -> ThreadAttachment | None:
        """Find what is attached under these two names."""
        for attachment in self.attachments:
            named = attachment.attachment_type, attachment.identity_key
            if named == (attachment_type, identity_key):
                return attachment
        return None


def initial_read_state(thread_id: str) -> ThreadReadState:
    """Say how far a thread has been read in which nothing ever became unread."""
    return ThreadReadState(first_unread=None, revision=f"initial:{thread_id}")


def unread_from(state: ThreadReadState | None, turn_id: str, at_ms: int) -> ReadStateChanged:
    """Note that a turn has something to read; what was unread before stays so."""
    position: ThreadUnreadPosition | None = None if state is None else state.first_unread
    return ReadStateChanged(
        at_ms=at_ms,
        first_unread=position or TurnThreadUnreadPosition(turn_id=turn_id),
        revision=new_revision(),
    )


def new_revision() -> str:
    """Make the name of a read state; clients compare it and nothing else."""
    return str(uuid.uuid4())


PREVIEW_CHARS = 1024
"""Of the first message of a user that lists show."""
KEPT_TURNS = 32
"""Turns that stay in memory; older ones are read from the log, page by page."""
KEPT_BYTES = 1 << 18
"""Bytes of lines whose items stay in memory, of all these turns together."""


@dataclass(slots=True)
class TurnState:
    """One turn."""

    id: str
    started_at_ms: int
    status: Literal["inProgress", "completed", "interrupted", "failed"] = "inProgress"
    error: TurnError | None = None
    completed_at_ms: int | None = None
    duration_ms: int | None = None
    items: KeptItems = field(default_factory=KeptItems)


@dataclass(slots=True)
class ThreadState:
    """One thread: what the model sees as a whole, and the newest of what clients see.

    Times are Unix milliseconds.
    """

    created: ThreadCreated
    settings: Settings
    updated_at_ms: int
    recency_at_ms: int
    """Unix milliseconds of the user's last action, in contrast to the model's."""
    name: str | None = None
    preview: str = ""
    archived: bool = False
    history: list[JsonObject] = field(default_factory=list)
    """Raw Responses items, as the model sees them."""
    queued: list[InputQueued] = field(default_factory=list)
    history_left_out: bool = field(default=False, compare=False)
    """Whether the model sees more than `history`, as only a part of the log was read."""
    turns: list[TurnState] = field(default_factory=list)
    """The newest ones."""
    older_turns: int = 0
    """Turns before these."""
    usage: ThreadTokenUsage | None = None
    kept_turns: int = field(default=KEPT_TURNS, compare=False)
    kept_bytes: int = field(default=KEPT_BYTES, compare=False)
    _bytes: int = field(default=0, compare=False)
    signals: SignalStates = field(default_factory=SignalStates)
    measured: int = 0
    """Items of the history that the last token count covers."""
    queue: QueueState = field(default_factory=QueueState)
    metadata: ThreadMetadata = field(default_factory=ThreadMetadata)
    unfinished: dict[str, ItemLeftRunning] = field(default_factory=dict)
    """Items that go on, or went on when their process died, by id."""
    half_written: dict[str, FilesChanging] = field(default_factory=dict)
    """Patches whose items have no end, by the id of the item."""
    turn_settings: Settings | None = field(default=None, compare=False)
    """Of the running turn; in no record, as a turn does not outlive its process."""

    @property
    def in_force(self) -> Settings:
        """The settings that the next step of a turn goes by."""
        return self.turn_settings or self.settings

    @property
    def id(self) -> str:
        """The thread's id."""
        return self.created.thread_id

    @property
    def accepted(self) -> AcceptedInputs:
        """Inputs that clients named and turns took."""
        return self.queue.accepted

    @property
    def open_turn(self) -> TurnState | None:
        """The turn that has begun and not ended."""
        last = self.turns[-1] if self.turns else None
        return last if last is not None and last.status == "inProgress" else None

    @property
    def has_content(self) -> bool:
        """Whether anything was ever said or injected."""
        return bool(
            self.turns
            or self.history
            or self.history_left_out
            or self.name
            or self.queue.entries
            or self.metadata.section_id
        )

    @property
    def is_whole(self) -> bool:
        """Whether all turns are in memory with all their items."""
        return not self.older_turns and not any(turn.items.left_out for turn in self.turns)

    def apply(self, record: Record, size: int = 0) -> None:  # noqa: C901, PLR0912 - a case for each record
        """Take one more record into account; `size` is that of its line, in bytes."""
        if isinstance(record, MetadataRecord):
            self.metadata.apply(record)
            return
        self.updated_at_ms = max(self.updated_at_ms, record.at_ms)
        if isinstance(record, QueueRecord):
            self.queue.apply(record)
            return
        match record:
            case SettingsChanged():
                self.settings = record.settings
            case TurnStarted():
                self._open_turn(record)
            case HistoryAppended():
                turn = self.open_turn
                self.history.extend(record.items)
                self.signals.history_grew(record, None if turn is None else turn.id)
            case InputQueued():
                self._queue_input(record)
            case InputAccepted():
                self.accepted.note(record)
            case InputTaken():
                self._take_input()
            case SignalRecalled():
                self._recall(record)
            case ItemCompleted():
                self._complete(record.item, size)
                self.half_written.pop(getattr(record.item, "id", ""), None)
            case FilesChanging():
                self.half_written[record.item_id] = record
            case ItemLeftRunning():
                self._complete(record.item, size)
                self.unfinished[record.item.id] = record
            case ItemEnded():
                self._end(record, size)
            case TokensUsed():
                self.usage = record.usage
                self.measured = len(self.history)
            case HistoryCompacted():
                self.history = list(record.items)
                self.measured = 0
                self.signals.history_compacted(record)
            case TurnCompleted():
                self._close_turn(record)
            case NameChanged():
                self.name = record.name
            case ArchivedChanged():
                self.archived = record.archived
            case TurnsReverted():
                # What it drops is not applied in the first place, see `dropped_in`.
                self.signals.dropped(record.signals or ())
            case ThreadCreated() | ApprovalDecided():
                pass

    def _open_turn(self, record: TurnStarted) -> None:
        self.give_up_open_turn(record.at_ms)
        self.turns.append(TurnState(record.turn_id, record.at_ms))
        self.queue.paused = False
        self.recency_at_ms = max(self.recency_at_ms, record.at_ms)
        self._forget_old()

    def _queue_input(self, record: InputQueued) -> None:
        self.queued.append(record)
        if record.signal is not None:
            self.signals.queued(record.signal, record.items[0])
        if record.submission_id is not None:
            self.queue.take(record.submission_id)

    def give_up_open_turn(self, at_ms: int) -> None:
        """Mark a turn without an end in the log as interrupted: its process has died."""
        if (turn := self.open_turn) is not None:
            self._close_turn(TurnCompleted(at_ms=at_ms, turn_id=turn.id, status="interrupted"))

    def _take_input(self) -> None:
        for queued in self.queued:
            self.history.extend(queued.items)
            if queued.message is not None:
                self._complete(queued.message, len(queued.message.model_dump_json()))
        self.queued.clear()
        self.signals.input_taken()

    def _recall(self, record: SignalRecalled) -> None:
        item = self.signals.recall(record.source, record.id)
        self.history = [kept for kept in self.history if kept is not item]
        self.queued = [entry for entry in self.queued if entry.items[:1] != [item]]

    def _complete(self, item: ThreadItem, size: int) -> None:
        if isinstance(item, UserMessageThreadItem) and not self.preview:
            self.preview = text_of_input(item.content)[:PREVIEW_CHARS]
        self.keep(item, size)

    def _end(self, record: ItemEnded, size: int) -> None:
        self.unfinished.pop(record.item.id, None)
        for turn in self.turns:
            if turn.id == record.turn_id:
                self._bytes += turn.items.replace(record.item, size)
                self._forget_old()

    def keep(self, item: ThreadItem | bytes, size: int) -> None:
        """Add an item, or the line that holds it, to the last turn."""
        if self.turns:
            self.turns[-1].items.add(item, size)
            self._bytes += size
            self._forget_old()

    def _forget_old(self) -> None:
        while len(self.turns) > self.kept_turns:
            self._bytes -= self.turns.pop(0).items.size
            self.older_turns += 1
        for turn in self.turns:
            while self._bytes > self.kept_bytes and turn.items:
                self._bytes -= turn.items.drop_oldest()
            if self._bytes <= self.kept_bytes:
                return

    def _close_turn(self, record: TurnCompleted) -> None:
        self._take_input()
        turn = self.open_turn
        if turn is None or turn.id != record.turn_id:
            return
        self.signals.turn_ended(record.turn_id, record.status)
        self.accepted.turn_over(record.status)
        turn.status, turn.error = record.status, record.error
        turn.completed_at_ms, turn.duration_ms = record.at_ms, record.duration_ms


def replay(records: Iterable[Record]) -> ThreadState:
    """Add records up.

    Raises:
        NotARollout: there is no record, or the first one does not create a thread.
    """
    remaining = iter(records)
    first = next(remaining, None)
    if not isinstance(first, ThreadCreated):
        raise NotARollout
    state = begin(first)
    for record in remaining:
        state.apply(record)
    return state


def begin(created: ThreadCreated) -> ThreadState:
    """Make the state of a thread that was just created."""
    return ThreadState(
        created,
        created.settings,
        created.at_ms,
        created.at_ms,
        metadata=ThreadMetadata(
            git_info=created.git_info,
            project_id=created.project_id,
            daybreak_enabled=created.daybreak_enabled,
        ),
    )
