"""A thread's queue: input that waits until the thread is idle, and becomes a turn each. No I/O.

A change is planned against the state, written as records and then applied, so that a refused change
leaves no trace. An entry leaves the queue with the line of the log that makes it a message.
Source: docs/queue.md.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, TypeVar

from pydantic_core import to_json

from protocol.log.rollout import (
    InputAccepted,
    QueuePaused,
    QueueRecord,
    QueueReordered,
    SubmissionChanged,
    SubmissionQueued,
    SubmissionRemoved,
    SubmissionTaken,
)
from protocol.model import WireModel
from protocol.turns.items import UserInput
from protocol.turns.requests import AdditionalContextEntry, TurnStartParams

KEPT = 1024
"""The newest inputs of a thread; what is older counts as new."""

TurnEnding: TypeAlias = Literal["completed", "interrupted", "failed"]


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
