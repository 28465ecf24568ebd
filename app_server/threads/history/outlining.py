"""Reading on in a log: its new turns, where their items are, and what was said. Blocks.

What is known of a log covers its bytes up to a mark. Whoever keeps that lets it catch up with the
log first, from the mark on; a revert is known only when it is met, and then all is read again.
Source: docs/architecture.md, "Threads on disk".
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

from app_server.threads.history.texts import text_of
from app_server.threads.log.outline import (
    EndAfterTurn,
    ItemKind,
    ItemPlace,
    LogLine,
    Outliner,
    TurnOutline,
)
from app_server.threads.log.reading import Dropped, Log, scan_lines
from protocol.log.rollout import (
    InputQueued,
    ItemCompleted,
    ItemEnded,
    ItemLeftRunning,
    parse_record,
)
from protocol.turns.items import ThreadItem

PAGE_CHARS = 16_384
"""Characters of a page of text; a longer message is cut to one page."""
MAX_PAGES = 32
"""Pages of a thread, so that one thread never fills an index: 524,288 characters."""
STEP_BYTES = 16 << 20
"""Of a log that are read at once: their turns are in memory until they are written."""
BETWEEN = "\x1e"
"""Stands between messages, so that nothing is found across two of them."""


def item_in(line: bytes) -> ThreadItem | None:
    """Return the item that a line holds, as its own or as queued input."""
    match parse_record(line):
        case ItemCompleted(item=item) | ItemLeftRunning(item=item) | ItemEnded(item=item):
            return item
        case InputQueued(message=message):
            return message
    return None


class TextPages:
    """What was said in one thread, in pages that are numbered from 0; the newest MAX_PAGES."""

    def __init__(self, read_last: Callable[[], tuple[int, str] | None]) -> None:
        """`read_last` reads the newest page that is kept, with its number, when it is needed."""
        self._read_last = read_last
        self.changed: dict[int, str] = {}
        """Pages that have to be written, by their numbers, oldest first."""
        self.kept: int | None = None
        """Number of the page that was there before; those above it are new."""
        self._last: int | None = None

    def add(self, text: str) -> None:
        """Append a message to the newest page, or begin one."""
        text = text.replace(BETWEEN, " ")[:PAGE_CHARS]
        if not text.strip():
            return
        if self._last is None:
            self._open()
        assert self._last is not None
        written = self.changed[self._last]
        if written and len(written) + len(text) > PAGE_CHARS:
            self._last += 1
            written = ""
            if (oldest := self._last - MAX_PAGES) in self.changed:
                # It gives way as soon as it is written.
                self.changed[oldest] = ""
        self.changed[self._last] = f"{written}{BETWEEN}{text}" if written else text

    def _open(self) -> None:
        found = self._read_last()
        if found is None:
            self._last = 0
            self.changed[0] = ""
        else:
            self._last, self.changed[found[0]] = found
            self.kept = self._last


@dataclass(slots=True)
class Progress:
    """How far a log is known, and the state to go on with."""

    seen: int
    at_ms: int
    outliner: Outliner


def read_on(
    log: Log,
    progress: Progress,
    dropped: Dropped | None,
    pages: TextPages,
    find_turn: Callable[[str], TurnOutline | None],
    size: int,
) -> bool:
    """Read from where `progress` stands: STEP_BYTES, or to `size`, the end of the log.

    Without `dropped` only up to a revert: then False. `find_turn` returns a turn that was read
    before, by its id. Turns that are new or different are in `progress.outliner.changed`
    afterwards.

    Raises:
        FileNotFoundError: there is no such log.
        OSError: it cannot be read.
    """
    outliner, end = progress.outliner, min(size, progress.seen + STEP_BYTES)
    with log.open() as file:
        for line in scan_lines(log, progress.seen, end):
            if line.type == "turnsReverted" and dropped is None:
                return False
            if dropped is not None and dropped.has(line.type, line.offset):
                outliner.skip(line)
            else:
                outliner.feed(line)
            for place in outliner.added:
                if place.kind is not ItemKind.OTHER:
                    pages.add(text_of(item_in(_content(file, place, line))))
            outliner.added.clear()
            for ended in outliner.ended:
                turn = outliner.find(ended.turn_id) or find_turn(ended.turn_id)
                # A turn that was dropped has none.
                if turn is not None and _end_after_turn(turn, ended, file):
                    outliner.changed.append(turn)
            outliner.ended.clear()
            progress.seen, progress.at_ms = line.end, max(progress.at_ms, line.at_ms)
    return True


def _end_after_turn(turn: TurnOutline, ended: EndAfterTurn, file: BinaryIO) -> bool:
    """Point an item of a turn at the line that completed it; False: the turn has no such item."""
    for index in range(len(turn) - 1, -1, -1):
        place = turn.place(index)
        if place.kind is ItemKind.OTHER:
            item = item_in(_read(file, place))
            if getattr(item, "id", None) == ended.item_id:
                turn.replace(index, ended.place)
                return True
    return False


def _content(file: BinaryIO, place: ItemPlace, line: LogLine) -> bytes:
    return line.content if place.offset == line.offset else _read(file, place)


def _read(file: BinaryIO, place: ItemPlace) -> bytes:
    file.seek(place.offset)
    return file.read(place.length)
