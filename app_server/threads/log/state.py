"""What the records of a log add up to: the queue of a thread, its signals, and the thread. No I/O.

Does not know: files.
Source: docs/wire.md, "Rollout lines"; docs/queue.md; docs/signals.md, "Stages".
"""

import hashlib
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, TypeVar

from pydantic_core import to_json

from app_server.threads.usage import ModelName, UsageLedger
from protocol.log.metadata import (
    AttachmentAdded,
    AttachmentRemoved,
    BudgetChanged,
    DaybreakChanged,
    GitInfoChanged,
    GoalChanged,
    MemoryModeChanged,
    MetadataRecord,
    OperationLogged,
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
    QueuePaused,
    QueueRecord,
    QueueReordered,
    Record,
    Settings,
    SettingsChanged,
    SignalMark,
    SignalRecalled,
    SubmissionChanged,
    SubmissionQueued,
    SubmissionRemoved,
    SubmissionTaken,
    ThreadCreated,
    TokensUsed,
    TurnCompleted,
    TurnsReverted,
    TurnStarted,
    UsageRecorded,
    parse_record,
)
from protocol.model import JsonObject, WireModel
from protocol.threads.thread import (
    BudgetLimits,
    GitInfo,
    ThreadAttachment,
    ThreadGoal,
    ThreadMemoryMode,
    ThreadReadState,
    ThreadUnreadPosition,
    TurnThreadUnreadPosition,
)
from protocol.turns.items import (
    KnownThreadItem,
    ThreadItem,
    UserInput,
    UserMessageThreadItem,
    text_of_input,
)
from protocol.turns.requests import AdditionalContextEntry, TurnStartParams
from protocol.turns.turn import ThreadTokenUsage, TurnError

KEPT = 1024
"""The newest inputs of a thread; what is older counts as new."""

TurnEnding: TypeAlias = Literal["completed", "interrupted", "failed"]


class NotARollout(Exception):
    """The records do not begin with the creation of a thread."""


@dataclass(slots=True)
class AcceptedInput:
    """One input of a client."""

    digest: str
    """Of the whole request."""
    turn_id: str
    status: Literal["inProgress"] | TurnEnding = "inProgress"
    """Of the turn that took it."""


@dataclass(slots=True)
class AcceptedInputs:
    """The newest named inputs of one thread, by their names."""

    _inputs: dict[str, AcceptedInput] = field(default_factory=dict)
    _of_open_turn: list[AcceptedInput] = field(default_factory=list)

    def find(self, client_id: str | None) -> AcceptedInput | None:
        """Return what was accepted under a name."""
        return None if client_id is None else self._inputs.get(client_id)

    def note(self, record: InputAccepted) -> None:
        """Remember one more; the oldest is forgotten if there are too many."""
        accepted = AcceptedInput(record.digest, record.turn_id)
        self._inputs[record.client_id] = accepted
        self._of_open_turn.append(accepted)
        if len(self._inputs) > KEPT:
            del self._inputs[next(iter(self._inputs))]

    def turn_over(self, status: TurnEnding) -> None:
        """Remember how the turn ended that took the last ones."""
        for accepted in self._of_open_turn:
            accepted.status = status
        self._of_open_turn.clear()


def digest_of_words(
    thread_id: str,
    client_id: str | None,
    content: Sequence[UserInput],
    context: Mapping[str, AdditionalContextEntry] | None = None,
) -> str | None:
    """Return the digest of a `turn/start` that has an input and no settings; None without a name.

    What is steered or queued has it too, so that one input is accepted once, whichever way it came.
    """
    if not client_id:
        return None
    start = TurnStartParams(
        thread_id=thread_id,
        client_user_message_id=client_id,
        input=list(content),
        additional_context=None if context is None else dict(context),
    )
    return digest_of(start)


def digest_of(params: WireModel, *, without: Set[str] = frozenset()) -> str:
    """Return the SHA-256 of a request's members, in hexadecimal; members `without` do not count.

    Members that are null and members that are missing are the same, and their order is nothing.
    """
    value = params.model_dump(mode="json", by_alias=True, exclude=set(without), exclude_none=True)
    return hashlib.sha256(to_json(_sorted(value))).hexdigest()


def _sorted(value: object) -> object:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_sorted(element) for element in value]
    return value


MAX_ENTRIES = 100
MAX_ENTRY_BYTES = 900_000
"""Of one entry as JSON: an answer that shows it must fit into a client's message."""
MAX_QUEUE_BYTES = 16 * 1024 * 1024
"""Of all entries as JSON."""
MAX_REMEMBERED = 1024
"""Client-chosen ids of entries that became turns; a repeated request is recognized by them."""

Result = TypeVar("Result")


class QueueRefusal(Exception):
    """The queue does not take a change; `word` stays the same, `facts` go beside it."""

    def __init__(self, text: str, word: str, **facts: str | int) -> None:
        super().__init__(text)
        self.word = word
        self.facts = facts


@dataclass(frozen=True, slots=True)
class Remembered:
    """An entry that became a turn."""

    submission_id: str
    digest: str
    """Of its input, as JSON."""


@dataclass(slots=True)
class QueueState:
    """Queued submissions, and ids of submissions that became turns."""

    entries: list[SubmissionQueued] = field(default_factory=list)
    paused: bool = False
    """The user stopped a turn, and none has been started since."""
    taken: OrderedDict[str, Remembered] = field(default_factory=OrderedDict)
    """By client-chosen id; the oldest are forgotten first."""
    sizes: dict[str, int] = field(default_factory=dict)
    """Bytes of the entries as JSON, by id."""
    accepted: AcceptedInputs = field(default_factory=AcceptedInputs)
    """The inputs that turns of the thread took: what has a name has it once."""

    @property
    def next(self) -> SubmissionQueued | None:
        """The entry that becomes the next turn; None while there is none or the queue is paused."""
        return None if self.paused or not self.entries else self.entries[0]

    def find(self, submission_id: str) -> SubmissionQueued:
        """Return a waiting entry.

        Raises:
            QueueRefusal: it is not, or not any more, in the queue.
        """
        for entry in self.entries:
            if entry.submission_id == submission_id:
                return entry
        raise QueueRefusal(
            f"queued submission not found: {submission_id}",
            "queuedSubmissionNotFound",
            queuedSubmissionId=submission_id,
        )

    def submission_named(self, client_id: str) -> str | None:
        """Return the id of the entry that a client gave a name, waiting or taken; or None."""
        for entry in self.entries:
            if entry.client_user_message_id == client_id:
                return entry.submission_id
        taken = self.taken.get(client_id)
        return None if taken is None else taken.submission_id

    def apply(self, record: QueueRecord) -> None:
        """Take one more record into account; one about an entry that is not there does nothing."""
        match record:
            case SubmissionQueued():
                self.entries.append(record)
                self.sizes[record.submission_id] = size_of(record)
            case SubmissionChanged():
                self._change(record)
            case SubmissionRemoved():
                self._drop(record.submission_id)
            case SubmissionTaken():
                self.take(record.submission_id)
            case QueueReordered():
                places = {each: place for place, each in enumerate(record.submission_ids)}
                self.entries.sort(key=lambda e: places.get(e.submission_id, len(places)))
            case QueuePaused():
                self.paused = True

    def _change(self, record: SubmissionChanged) -> None:
        for place, entry in enumerate(self.entries):
            if entry.submission_id == record.submission_id:
                self.entries[place] = _changed(entry, record)
                self.sizes[record.submission_id] = size_of(self.entries[place])

    def _drop(self, submission_id: str) -> None:
        self.sizes.pop(submission_id, None)
        self.entries = [e for e in self.entries if e.submission_id != submission_id]

    def take(self, submission_id: str) -> None:
        """Take an entry that became a turn off the queue; one that is not there changes nothing."""
        for entry in self.entries:
            if entry.submission_id == submission_id and entry.client_user_message_id:
                known = Remembered(submission_id, digest(entry.input))
                self.taken[entry.client_user_message_id] = known
                if len(self.taken) > MAX_REMEMBERED:
                    self.taken.popitem(last=False)
        self._drop(submission_id)


Planned: TypeAlias = tuple[Sequence[QueueRecord], Result]
"""A change: the records that make it, and what the caller gets."""

Plan: TypeAlias = Callable[[QueueState], Planned[Result]]
"""Raises QueueRefusal."""


def digest(content: Sequence[UserInput]) -> str:
    """Identify an input by its content."""
    return hashlib.sha256(
        b"\n".join(part.model_dump_json().encode() for part in content)
    ).hexdigest()


def adding(entry: SubmissionQueued, queue: QueueState) -> Planned[SubmissionQueued]:
    """Plan to put an entry at the end; an id that the client used before gives that entry again.

    Refused: an id that was used with another input, or that a turn took otherwise; an entry or a
    queue that is too large.
    """
    if (known := _known(queue, entry)) is not None:
        return (), known
    if len(queue.entries) >= MAX_ENTRIES:
        raise QueueRefusal(
            f"queue cannot contain more than {MAX_ENTRIES} submissions",
            "queueFull",
            maxSubmissions=MAX_ENTRIES,
        )
    _check_size(queue, entry)
    return (entry,), entry


def _known(queue: QueueState, entry: SubmissionQueued) -> SubmissionQueued | None:
    client_id = entry.client_user_message_id
    if not client_id:
        return None
    for waiting in queue.entries:
        if waiting.client_user_message_id == client_id:
            known, before = waiting, digest(waiting.input)
            break
    else:
        if (taken := queue.taken.get(client_id)) is None:
            if (accepted := queue.accepted.find(client_id)) is not None:
                raise _name_taken(client_id, turnId=accepted.turn_id)
            return None
        known = entry.model_copy(update={"submission_id": taken.submission_id})
        before = taken.digest
    if before != digest(entry.input):
        raise _name_taken(client_id, queuedSubmissionId=known.submission_id)
    return known


def _name_taken(client_id: str, **facts: str) -> QueueRefusal:
    text = f"clientUserMessageId {client_id} is taken by another input"
    return QueueRefusal(text, "clientUserMessageIdTaken", clientUserMessageId=client_id, **facts)


def changing(change: SubmissionChanged, queue: QueueState) -> Planned[SubmissionQueued]:
    """Plan to give an entry another input; without metadata it keeps what it has."""
    entry = queue.find(change.submission_id)
    if not change.responsesapi_client_metadata:
        kept = entry.responsesapi_client_metadata
        change = change.model_copy(update={"responsesapi_client_metadata": kept})
    changed = _changed(entry, change)
    _check_size(queue, changed)
    return (change,), changed


def _changed(entry: SubmissionQueued, change: SubmissionChanged) -> SubmissionQueued:
    metadata = change.responsesapi_client_metadata
    update = {"input": change.input, "responsesapi_client_metadata": metadata}
    return entry.model_copy(update=update)


def removing(removal: SubmissionRemoved, queue: QueueState) -> Planned[bool]:
    """Plan to take an entry out; False if it does not wait any more."""
    waits = any(entry.submission_id == removal.submission_id for entry in queue.entries)
    return ((removal,), True) if waits else ((), False)


def reordering(order: QueueReordered, queue: QueueState) -> Planned[None]:
    """Plan another order, which must name every waiting entry once."""
    if sorted(order.submission_ids) != sorted(entry.submission_id for entry in queue.entries):
        raise QueueRefusal(
            "queue reorder must include every queued submission exactly once",
            "queueOrderIncomplete",
        )
    return (order,), None


def size_of(entry: SubmissionQueued) -> int:
    """Count the bytes of an entry as JSON."""
    return len(entry.model_dump_json())


def _check_size(queue: QueueState, entry: SubmissionQueued) -> None:
    size = size_of(entry)
    if size > MAX_ENTRY_BYTES:
        raise QueueRefusal(
            f"a queued submission cannot have more than {MAX_ENTRY_BYTES} bytes",
            "queuedSubmissionTooLarge",
            maxBytes=MAX_ENTRY_BYTES,
        )
    others = sum(queue.sizes.values()) - queue.sizes.get(entry.submission_id, 0)
    if size + others > MAX_QUEUE_BYTES:
        raise QueueRefusal(
            f"queue cannot have more than {MAX_QUEUE_BYTES} bytes",
            "queueFull",
            maxBytes=MAX_QUEUE_BYTES,
        )


MAX_REMEMBERED_SIGNALS = 1024
"""Of a thread; the oldest that are over are forgotten first."""

SignalKey: TypeAlias = tuple[str, str]
"""Source and id."""

PlaceStage: TypeAlias = Literal["queued", "visible", "seen", "answered", "recalled"]


@dataclass(slots=True)
class SignalState:
    """Stage of one signal."""

    item_id: str
    woke: bool
    stage: PlaceStage
    item: JsonObject | None
    """The item itself, until a model has seen it."""
    turn_id: str | None = None
    """The turn it began, then the turn whose model saw it."""
    trouble: Literal["turnFailed", "turnInterrupted"] | None = None
    """End status of the turn that should have answered it."""

    @property
    def is_over(self) -> bool:
        """Whether nothing more can become of it."""
        return self.stage in ("answered", "recalled")


@dataclass(slots=True)
class SignalStates:
    """The signals of one thread, in the order in which they came."""

    _places: dict[SignalKey, SignalState] = field(default_factory=dict)

    def __iter__(self) -> Iterator[tuple[SignalKey, SignalState]]:
        return iter(self._places.items())

    def find(self, key: SignalKey) -> SignalState | None:
        """Return where a signal stands, or None when the log does not have it."""
        return self._places.get(key)

    def history_grew(self, record: HistoryAppended, turn_id: str | None) -> None:
        """Take items in; output of a model proves that it saw all that was visible."""
        for item, mark in zip(record.items, record.signals or (), strict=False):
            self._add(mark, SignalState(mark.item_id, mark.woke, "visible", item))
            if mark.woke:
                self._places[mark.source, mark.id].turn_id = turn_id
        if turn_id is not None and any(_is_output(item) for item in record.items):
            self._advance("visible", "seen", turn_id)

    def queued(self, mark: SignalMark, item: JsonObject) -> None:
        """Take in a signal that waits for the next request of the running turn."""
        self._add(mark, SignalState(mark.item_id, mark.woke, "queued", item))

    def input_taken(self) -> None:
        """Mark queued signals as visible to the model."""
        self._advance("queued", "visible")

    def turn_ended(self, turn_id: str, end: Literal["completed", "interrupted", "failed"]) -> None:
        """Note how a turn ended for the signals that its model saw, or that had begun it."""
        for place in self._places.values():
            if place.stage == "seen" and end == "completed":
                place.stage, place.turn_id, place.trouble = "answered", turn_id, None
            elif place.turn_id == turn_id and not place.is_over and end != "completed":
                place.trouble = "turnFailed" if end == "failed" else "turnInterrupted"

    def history_compacted(self, record: HistoryCompacted) -> None:
        """Note that the model which summarized the history has seen what is no longer in it."""
        for place in self._places.values():
            if place.stage == "visible" and place.item not in record.items:
                place.stage, place.turn_id, place.item = "seen", record.turn_id, None

    def recall(self, source: str, signal_id: str) -> JsonObject | None:
        """Note that a signal was taken back, and return the item to take out."""
        place = self._places.get((source, signal_id))
        if place is None:
            return None
        item, place.item, place.stage = place.item, None, "recalled"
        return item

    def dropped(self, marks: Sequence[SignalMark]) -> None:
        """Note that signals were dropped together with turns."""
        for mark in marks:
            self._add(mark, SignalState(mark.item_id, mark.woke, "recalled", None))

    def missing_in(self, other: "SignalStates") -> list[SignalMark]:
        """Return the signals of this book that are not over and that another one does not have."""
        return [
            SignalMark(source=source, id=signal_id, item_id=place.item_id, woke=place.woke)
            for (source, signal_id), place in self
            if not place.is_over and other.find((source, signal_id)) is None
        ]

    def _add(self, mark: SignalMark, place: SignalState) -> None:
        self._places[mark.source, mark.id] = place
        if len(self._places) > MAX_REMEMBERED_SIGNALS:
            over = next((key for key, old in self._places.items() if old.is_over), None)
            if over is not None:
                del self._places[over]

    def _advance(self, before: PlaceStage, after: PlaceStage, turn_id: str | None = None) -> None:
        for place in self._places.values():
            if place.stage == before:
                place.stage = after
                if after == "seen":
                    place.turn_id, place.item, place.trouble = turn_id, None, None


def _is_output(item: JsonObject) -> bool:
    """Whether a model said this, and not a user, a tool or this server."""
    kind = str(item.get("type", "message"))
    if kind == "message":
        return item.get("role") == "assistant"
    return not kind.endswith("_output")


@dataclass(slots=True, eq=False, repr=False)
class KeptItems:
    """Items in their order, as objects, or as their lines until somebody looks at them."""

    _entries: deque[tuple[ThreadItem | bytes, int]] = field(default_factory=deque, init=False)
    left_out: int = field(default=0, init=False)
    """Items before these, which left memory."""
    size: int = field(default=0, init=False)
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
    budget: BudgetLimits | None = None
    budget_goes_on: bool = False
    """Whether a turn that a budget has ended is to go on."""
    attachments: list[ThreadAttachment] = field(default_factory=list)
    """Oldest first."""
    operations: dict[str, OperationLogged] = field(default_factory=dict)
    """The newest requests that clients named, by their ids."""

    def apply(self, record: MetadataRecord) -> None:  # noqa: C901 - a case for each record
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
            case BudgetChanged():
                self.budget = record.budget
                self.budget_goes_on = record.goes_on is True
            case AttachmentAdded():
                self.attachments.append(record.attachment)
            case AttachmentRemoved():
                self.attachments = [a for a in self.attachments if a.id != record.attachment_id]
            case OperationLogged():
                self.operations[record.operation_id] = record
                if len(self.operations) > KEPT:
                    del self.operations[next(iter(self.operations))]

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


@dataclass(frozen=True, slots=True)
class CountedInput:
    """Input of a request, as its model has counted it."""

    model: ModelName
    tokens: int
    items: int
    """Items of the history that it had, from the first one on."""


def _counted_in(record: UsageRecorded) -> CountedInput | None:
    if record.history_items is None or record.usage is None:
        return None
    model = record.model_provider, record.model
    return CountedInput(model, max(record.usage.input_tokens, 0), record.history_items)


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
    pending_input: list[InputQueued] = field(default_factory=list)
    """Input that the running turn has accepted and its model has not; see also `queue`."""
    history_left_out: bool = field(default=False, compare=False)
    """Whether the model sees more than `history`, as only a part of the log was read."""
    turns: list[TurnState] = field(default_factory=list)
    """The newest ones."""
    older_turns: int = 0
    """Turns before these."""
    usage: ThreadTokenUsage | None = None
    ledger: UsageLedger = field(default_factory=UsageLedger)
    """Usage of the thread's own requests, those of dropped turns too."""
    kept_turns: int = field(default=KEPT_TURNS, compare=False)
    kept_bytes: int = field(default=KEPT_BYTES, compare=False)
    _bytes: int = field(default=0, compare=False)
    signals: SignalStates = field(default_factory=SignalStates)
    measured: int = 0
    """Items of the history that the last token count covers."""
    counted: CountedInput | None = None
    """The newest request whose input the model has counted, while its items are in the history."""
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

    def apply(self, record: Record, size: int = 0) -> None:  # noqa: C901, PLR0912, PLR0915 - a case for each record
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
                self.keep(record.item, size)
                self.half_written.pop(getattr(record.item, "id", ""), None)
            case FilesChanging():
                self.half_written[record.item_id] = record
            case ItemLeftRunning():
                self.keep(record.item, size)
                self.unfinished[record.item.id] = record
            case ItemEnded():
                self._end(record, size)
            case TokensUsed():
                self.usage = record.usage
                self.measured = len(self.history)
            case UsageRecorded():
                self.ledger.apply(record)
                self.counted = _counted_in(record) or self.counted
            case HistoryCompacted():
                self.history = list(record.items)
                self.measured, self.counted = 0, None
                self.signals.history_compacted(record)
            case TurnCompleted():
                self._close_turn(record)
            case NameChanged():
                self.name = record.name
            case ArchivedChanged():
                self.archived = record.archived
            case TurnsReverted():
                # What it drops is not applied in the first place, see `dropped_in`; usage is.
                self.counted = None
                self.signals.dropped(record.signals or ())
            case ThreadCreated() | ApprovalDecided():
                pass

    def _open_turn(self, record: TurnStarted) -> None:
        if self.open_turn is not None:
            self.give_up_open_turn(record.at_ms)
        self.turns.append(TurnState(record.turn_id, record.at_ms))
        self.queue.paused = False
        self.metadata.budget_goes_on = False
        self.recency_at_ms = max(self.recency_at_ms, record.at_ms)
        self._forget_old()

    def _queue_input(self, record: InputQueued) -> None:
        self.pending_input.append(record)
        if record.signal is not None:
            self.signals.queued(record.signal, record.items[0])
        if record.submission_id is not None:
            self.queue.take(record.submission_id)

    def give_up_open_turn(self, at_ms: int) -> None:
        """Mark a turn without an end in the log as interrupted: its process has died."""
        if (turn := self.open_turn) is not None:
            self._close_turn(TurnCompleted(at_ms=at_ms, turn_id=turn.id, status="interrupted"))

    def _take_input(self) -> None:
        for pending in self.pending_input:
            self.history.extend(pending.items)
            if pending.message is not None:
                self.keep(pending.message, len(pending.message.model_dump_json()))
        self.pending_input.clear()
        self.signals.input_taken()

    def _recall(self, record: SignalRecalled) -> None:
        item = self.signals.recall(record.source, record.id)
        self.history = [kept for kept in self.history if kept is not item]
        self.counted = None
        self.pending_input = [entry for entry in self.pending_input if entry.items[:1] != [item]]

    def _end(self, record: ItemEnded, size: int) -> None:
        self.unfinished.pop(record.item.id, None)
        for turn in self.turns:
            if turn.id == record.turn_id:
                self._bytes += turn.items.replace(record.item, size)
                self._forget_old()

    def keep(self, item: ThreadItem | bytes, size: int) -> None:
        """Add an item, or the line that holds it, to the last turn."""
        if isinstance(item, UserMessageThreadItem) and not self.preview:
            self.preview = text_of_input(item.content)[:PREVIEW_CHARS]
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
        if self.pending_input:
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
            budget=created.budget,
        ),
    )
