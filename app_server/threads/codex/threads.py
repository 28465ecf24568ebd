"""The threads that Codex keeps in a home: looking, summarizing, reading. Everything here blocks.

What was seen is remembered by size and time of each file, also across starts, so that only files
that changed are read again.
"""

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from app_server.threads.codex.items import NoItem, item_of_event, settings_of
from app_server.threads.codex.records import created_of, records_of
from app_server.threads.codex.rollouts import (
    CodexFile,
    CodexNames,
    NotACodexRollout,
    SeenRollout,
    Segment,
    find_files,
    has_folders,
    read_last_context,
    segments_of,
)
from app_server.threads.index.index import ThreadIndex
from app_server.threads.log.faults import LogFaults
from app_server.threads.log.file.writers import LogPaths
from app_server.threads.log.state.thread import ThreadState, begin, replay
from protocol.log.rollout import ArchivedChanged, ItemCompleted, NameChanged, Record, TurnStarted

logger = logging.getLogger(__name__)

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
