"""Rollouts of Codex as records of ours. Everything here blocks.

A rollout is read twice: first for what later lines take back (turns that were rolled back, history
that was condensed), then line by line into records, so that memory holds one line at a time.
"""

import logging
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from app_server.threads.codex.items import (
    NoItem,
    error_of,
    item_of_event,
    settings_of,
    source_of,
    usage_of,
)
from app_server.threads.codex.rollouts import CodexHead, CodexLine, Segment, is_user_message
from app_server.threads.log.faults import LogFaults
from protocol.log.rollout import (
    HistoryAppended,
    ItemCompleted,
    Record,
    Settings,
    SettingsChanged,
    ThreadCreated,
    TokensUsed,
    TurnCompleted,
    TurnStarted,
)
from protocol.model import Json, JsonObject
from protocol.turns.turn import TurnError

logger = logging.getLogger(__name__)

STARTS = ("task_started", "turn_started")
ENDS = ("task_complete", "turn_complete", "turn_aborted")
PASSED_THROUGH = "internal_chat_message_metadata_passthrough"
"""A member of raw items that is Codex's own business."""


@dataclass(slots=True)
class _Turn:
    has_items: bool = False
    """Whether its items stand there as such, and not as events alone."""
    has_user: bool = False
    rolled_back: bool = False


@dataclass(slots=True)
class _Outline:
    turns: list[_Turn] = field(default_factory=list)
    condensed: dict[int, int] = field(default_factory=dict)
    """Number of a `compacted` line to the number of turns that had begun by then."""

    def add(self, number: int, line: CodexLine, *, begins_turn: bool) -> None:
        if begins_turn:
            self.turns.append(_Turn())
        if line.kind == "compacted":
            self.condensed[number] = len(self.turns)
        if not self.turns:
            return
        kind = line.payload.get("type")
        if line.kind == "event_msg":
            self.turns[-1].has_items |= kind == "item_completed"
            self.turns[-1].has_user |= is_user_message(line)
            if kind == "thread_rolled_back":
                self._roll_back(line.payload.get("num_turns"))

    def _roll_back(self, count: Json) -> None:
        left = count if isinstance(count, int) else 0
        for turn in reversed(self.turns):
            if left <= 0:
                break
            if turn.rolled_back:
                continue
            turn.rolled_back = True
            left -= turn.has_user

    def is_gone(self, turns_begun: int) -> bool:
        return 0 < turns_begun <= len(self.turns) and self.turns[turns_begun - 1].rolled_back

    def last_condensed(self) -> int:
        """Return the number of the last `compacted` line that counts, or -1."""
        kept = [number for number, turns in self.condensed.items() if not self.is_gone(turns)]
        return max(kept, default=-1)


class _Begins:
    """Detector of the starts of turns; in old rollouts only the user's message marks one."""

    def __init__(self) -> None:
        self._open = False

    def __call__(self, line: CodexLine) -> bool:
        if line.kind != "event_msg":
            return False
        kind = line.payload.get("type")
        if kind in STARTS:
            self._open = True
            return True
        if kind in ENDS:
            self._open = False
        # Without a start there is no end either: the next message begins the next turn.
        return not self._open and is_user_message(line)


def created_of(segments: Sequence[Segment]) -> ThreadCreated:
    """Say what never changes about a thread, and its first settings."""
    file, head = segments[-1].file, segments[-1].head
    meta = head.meta
    base = meta.get("base_instructions")
    return ThreadCreated(
        at_ms=head.at_ms,
        thread_id=file.thread_id,
        settings=first_settings(head),
        source=source_of(meta.get("source")),
        cli_version=str(meta.get("cli_version", "unknown")),
        originator=_text(meta.get("originator")),
        thread_source=_text(meta.get("thread_source")),
        base_instructions=_text(base.get("text") if isinstance(base, dict) else base),
        imported_from=str(file.path),
    )


def first_settings(head: CodexHead) -> Settings:
    """Return the settings that a thread began with."""
    context = head.context or {"cwd": head.meta.get("cwd")}
    return settings_of(context, _text(head.meta.get("model_provider")) or "unknown")


def _text(value: Json) -> str | None:
    return value if isinstance(value, str) else None


def records_of(segments: Sequence[Segment], faults: LogFaults) -> Iterator[Record]:
    """Read a thread of Codex as records, the first of which creates it.

    What has no counterpart here is left out, and counted in `faults` where that is a loss.

    Raises:
        OSError: a rollout cannot be read.
    """
    outline, begins = _Outline(), _Begins()
    for number, line in enumerate(_lines(segments, LogFaults())):
        outline.add(number, line, begins_turn=begins(line))
    created = created_of(segments)
    yield created
    conversion = _Conversion(created, outline, faults)
    begins = _Begins()
    for number, line in enumerate(_lines(segments, faults)):
        yield from conversion.records(number, line, begins_turn=begins(line))
    if conversion.unknown:
        logger.info("%s: left out %s", segments[-1].file.path, dict(conversion.unknown))


def _lines(segments: Sequence[Segment], faults: LogFaults) -> Iterator[CodexLine]:
    for segment in segments:
        yield from segment.lines(faults)


class _Conversion:
    def __init__(self, created: ThreadCreated, outline: _Outline, faults: LogFaults) -> None:
        self._thread_id = uuid.UUID(created.thread_id)
        self._settings = created.settings
        self._provider = created.settings.model_provider
        self._outline = outline
        self._faults = faults
        self._condensed = outline.last_condensed()
        self._begun = 0
        self._turn_id: str | None = None
        self._started_at_ms = 0
        self._error: TurnError | None = None
        self.unknown: Counter[str] = Counter()

    def records(self, number: int, line: CodexLine, *, begins_turn: bool) -> Iterator[Record]:
        if begins_turn:
            self._begun += 1
            self._error = None
        if self._outline.is_gone(self._begun):
            self._turn_id = None
            return
        if begins_turn:
            self._turn_id = _text(line.payload.get("turn_id")) or self._new_id(number)
            self._started_at_ms = line.at_ms
            yield TurnStarted(at_ms=line.at_ms, turn_id=self._turn_id)
        match line.kind:
            case "response_item":
                if number > self._condensed:
                    yield from self._remembered(line.at_ms, [line.payload])
            case "compacted":
                if number == self._condensed:
                    yield from self._remembered(line.at_ms, _condensed_history(line.payload))
            case "turn_context":
                yield from self._settings_changed(line)
            case "event_msg":
                yield from self._event(number, line)

    def _new_id(self, number: int) -> str:
        return str(uuid.uuid5(self._thread_id, str(number)))

    def _remembered(self, at_ms: int, items: Sequence[JsonObject]) -> Iterator[Record]:
        kept = [{k: v for k, v in item.items() if k != PASSED_THROUGH} for item in items]
        yield HistoryAppended(at_ms=at_ms, items=kept)

    def _settings_changed(self, line: CodexLine) -> Iterator[Record]:
        settings = settings_of(line.payload, self._provider)
        if settings != self._settings:
            self._settings = settings
            yield SettingsChanged(at_ms=line.at_ms, settings=settings)

    def _event(self, number: int, line: CodexLine) -> Iterator[Record]:
        event, kind = line.payload, line.payload.get("type")
        if kind == "token_count":
            if (usage := usage_of(event.get("info"))) is not None:
                yield TokensUsed(at_ms=line.at_ms, usage=usage)
        elif kind == "error":
            self._error = error_of(event)
        elif kind in ENDS:
            yield from self._ended(line)
        elif self._turn_id is not None:
            yield from self._item(number, line)

    def _item(self, number: int, line: CodexLine) -> Iterator[Record]:
        event = line.payload
        assert self._turn_id is not None
        has_items = self._outline.turns[self._begun - 1].has_items
        if has_items and event.get("type") != "item_completed":
            return
        try:
            item = item_of_event(event, self._new_id(number), line.at_ms)
        except NoItem as exc:
            self.unknown[str(exc)] += 1
            self._faults.add_newer(line.number)
            return
        if item is not None:
            yield ItemCompleted(at_ms=line.at_ms, turn_id=self._turn_id, item=item)

    def _ended(self, line: CodexLine) -> Iterator[Record]:
        if self._turn_id is None:
            return
        error = error_of(line.payload.get("error")) or self._error
        duration = line.payload.get("duration_ms")
        interrupted = line.payload.get("type") == "turn_aborted"
        yield TurnCompleted(
            at_ms=line.at_ms,
            turn_id=self._turn_id,
            status="interrupted" if interrupted else "completed" if error is None else "failed",
            error=None if interrupted else error,
            duration_ms=duration
            if isinstance(duration, int)
            else max(line.at_ms - self._started_at_ms, 0),
        )
        self._turn_id = None


def _condensed_history(payload: JsonObject) -> Sequence[JsonObject]:
    history = payload.get("replacement_history")
    if isinstance(history, list):
        return [item for item in history if isinstance(item, dict)]
    text = str(payload.get("message", ""))
    content = [{"type": "input_text", "text": text}]
    return [{"type": "message", "role": "user", "content": content}]
