"""The threads that Codex keeps in a home: looking, summarizing, reading. Everything here blocks.

What was seen is remembered by size and time of each file, also across starts, so that only files
that changed are read again.
"""

import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from app_server.threads.files.codex.items import (
    NoItem,
    error_of,
    item_of_event,
    settings_of,
    source_of,
    usage_of,
)
from app_server.threads.files.codex.rollouts import (
    CodexFile,
    CodexHead,
    CodexLine,
    CodexNames,
    NotACodexRollout,
    SeenRollout,
    Segment,
    find_files,
    has_folders,
    is_user_message,
    read_last_context,
    segments_of,
)
from app_server.threads.files.index.index import ThreadIndex
from app_server.threads.files.writers import LogPaths
from app_server.threads.log.faults import LogFaults
from app_server.threads.log.state import ThreadState, begin, replay
from protocol.log.rollout import (
    ArchivedChanged,
    HistoryAppended,
    ItemCompleted,
    NameChanged,
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


LOOK_S = 1.0
"""Seconds that the listed threads of Codex may be out of date."""

STEP = 200
"""Threads that are handed over together."""


class NoCodexThread(Exception):
    """Codex has no such thread, or its rollout cannot be read."""


@dataclass(frozen=True, slots=True)
class CodexSource:
    """A thread of Codex, ready to be read."""

    file: CodexFile
    segments: list[Segment]
    name: str | None


class CodexThreads:
    """Threads of Codex in a home, as of the last look; safe to use from any worker thread."""

    def __init__(self, home: Path, paths: LogPaths) -> None:
        """`paths` has the logs of ours; of a thread that has one, that counts alone."""
        self._home = home
        self._names = CodexNames(home)
        self._paths = paths
        self._lock = threading.Lock()
        self._files: Mapping[str, CodexFile] = {}
        self._seen: dict[str, SeenRollout] | None = None
        self._shown: dict[str, Path] = {}
        self._unreadable: set[SeenRollout] = set()
        self._looked_at = float("-inf")
        self._generation = 0
        self.compressed = 0
        """Rollouts that Codex has compressed; they cannot be read here."""

    def look(self, index: ThreadIndex) -> None:
        """Bring the index up to date, unless it was within the last LOOK_S seconds."""
        with self._lock:
            if self._generation != index.generation:
                self._generation, self._seen = index.generation, None
            elif time.monotonic() - self._looked_at < LOOK_S:
                return
            self._look(index)
            self._looked_at = time.monotonic()

    def is_looked_at(self) -> bool:
        """Whether `look` would do nothing now, or find nothing; two stats, for the event loop."""
        if time.monotonic() - self._looked_at < LOOK_S:
            return True
        # None were there, and none are: most homes have never seen Codex.
        return self._seen == {} and not has_folders(self._home)

    def _look(self, index: ThreadIndex) -> None:
        if self._seen is None:
            self._seen = {seen.thread_id: seen for seen in index.seen()}
            self._shown.update((seen.thread_id, Path(seen.path)) for seen in self._seen.values())
        folder = find_files(self._home)
        names = self._names.read()
        if folder.compressed > self.compressed:
            logger.warning("%d compressed rollouts of Codex cannot be read", folder.compressed)
        self._files, self.compressed = folder.files, folder.compressed
        gone = [thread_id for thread_id in self._seen if thread_id not in folder.files]
        if gone:
            theirs = [thread_id for thread_id in gone if not self._paths.exists(thread_id)]
            index.forget_seen(theirs, rows_too=True)
            for thread_id in gone:
                del self._seen[thread_id]
                self._shown.pop(thread_id, None)
        changed: list[tuple[ThreadState, SeenRollout]] = []
        for file in folder.files.values():
            seen = SeenRollout.of(file, names.get(file.thread_id))
            if self._seen.get(file.thread_id) == seen or seen in self._unreadable:
                continue
            if self._paths.exists(file.thread_id):
                continue
            state = self._summarize(file, seen)
            if state is not None:
                changed.append((state, seen))
            if len(changed) == STEP:
                self._keep(index, changed)
                changed = []
        self._keep(index, changed)

    def _keep(self, index: ThreadIndex, changed: list[tuple[ThreadState, SeenRollout]]) -> None:
        assert self._seen is not None
        if changed:
            index.put_seen(changed)
            self._seen.update((seen.thread_id, seen) for _, seen in changed)
            self._shown.update((seen.thread_id, Path(seen.path)) for _, seen in changed)

    def _summarize(self, file: CodexFile, seen: SeenRollout) -> ThreadState | None:
        try:
            return _summary(CodexSource(file, segments_of(file, self._files), seen.name))
        except (NotACodexRollout, OSError) as exc:
            logger.warning("%s is not a rollout of Codex: %s", file.path, type(exc).__name__)
            self._unreadable.add(seen)
            return None

    def path_of(self, thread_id: str) -> Path | None:
        """Return the rollout of a thread that was listed or read; None when it is not Codex's."""
        return self._shown.get(thread_id)

    def forget_path(self, thread_id: str) -> None:
        """Note that a thread has a log of ours, which perhaps another process has imported."""
        self._shown.pop(thread_id, None)

    def listed(self) -> list[SeenRollout]:
        """Return the threads that lists show, as of the last look."""
        with self._lock:
            return list((self._seen or {}).values())

    def has(self, thread_id: str) -> bool:
        """Whether Codex has a thread, looking again."""
        try:
            self.find(thread_id)
        except NoCodexThread:
            return False
        return True

    def find(self, thread_id: str) -> CodexSource:
        """Find a thread, looking again, whenever the last look was.

        Raises:
            NoCodexThread
        """
        with self._lock:
            self._files = find_files(self._home).files
            file = self._files.get(thread_id)
            if file is None:
                raise NoCodexThread(thread_id)
            try:
                segments = segments_of(file, self._files)
            except (NotACodexRollout, OSError) as exc:
                raise NoCodexThread(thread_id) from exc
            return CodexSource(file, segments, self._names.read().get(thread_id))

    def read(self, thread_id: str) -> ThreadState:
        """Read a thread as it is now.

        Raises:
            NoCodexThread, OSError
        """
        source = self.find(thread_id)
        state = replay(records_of(source.segments, LogFaults()))
        _finish(state, source)
        self._shown[thread_id] = source.file.path
        return state

    def imported(self, thread_id: str, index: ThreadIndex) -> None:
        """Note that a thread has a log of ours from now on."""
        with self._lock:
            self._shown.pop(thread_id, None)
            if self._seen is not None and self._seen.pop(thread_id, None) is not None:
                index.forget_seen([thread_id], rows_too=False)


def records_to_import(source: CodexSource, faults: LogFaults) -> Iterator[Record]:
    """Read a thread of Codex as the records of a log of ours.

    Raises:
        OSError: it cannot be read.
    """
    yield from records_of(source.segments, faults)
    at_ms = source.file.updated_at_ms
    if source.name is not None:
        yield NameChanged(at_ms=at_ms, name=source.name)
    if source.file.archived:
        yield ArchivedChanged(at_ms=at_ms, archived=True)


def _summary(source: CodexSource) -> ThreadState:
    """Make what lists show of a thread from the beginning and the end of its rollout."""
    state = begin(created_of(source.segments))
    context = read_last_context(source.file)
    if context is not None:
        state.settings = settings_of(context, state.settings.model_provider)
    heads = (segment.head for segment in source.segments)
    line = next((head.first_user_line for head in heads if head.first_user_line), None)
    if line is not None:
        state.apply(TurnStarted(at_ms=line.at_ms, turn_id=""))
        with suppress(NoItem):
            item = item_of_event(line.payload, str(line.number), line.at_ms)
            assert item is not None, "a user's message has an item"
            state.apply(ItemCompleted(at_ms=line.at_ms, turn_id="", item=item))
    _finish(state, source)
    return state


def _finish(state: ThreadState, source: CodexSource) -> None:
    # When the last turn began stands nowhere near the ends of a rollout.
    state.updated_at_ms = state.recency_at_ms = source.file.updated_at_ms
    state.name = source.name
    state.archived = source.file.archived
