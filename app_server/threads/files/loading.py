"""A log of any size to a ThreadState, in one pass and in bounded memory. Everything here blocks.

What the model sees is read as a whole; of what clients see, only what stays in memory.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from app_server.threads.files.faults import FirstLineDamaged, LogFaults, LogTooNew
from app_server.threads.files.lines import dropped_in, scan_lines
from app_server.threads.log.outline import ItemKind, LogLine, item_kind
from app_server.threads.log.state import NotARollout, ThreadState, begin
from protocol.log.rollout import Record, ThreadCreated, is_newer, parse_record

_SIGNALS = b'"signals":['
_NO_ITEMS = b'"items":[]}\n'


def load_state(
    path: Path,
    faults: LogFaults | None = None,
    *,
    with_history: bool = True,
    before_turn_id: str | None = None,
    thorough: bool = False,
) -> ThreadState:
    """Add up what a log says.

    A torn last line is dropped, lines that make no sense or are of a newer version are skipped;
    `faults` counts them. Lines that need no reading are only looked at from both ends, but for
    those who are `thorough`. Without `with_history` the state's `history` stays empty, for those
    who only look. With `before_turn_id` the state is as a revert to before that turn would leave
    it.

    Raises:
        NotARollout: there is no whole line.
        FirstLineDamaged: there are some, and the first one does not create a thread.
        LogTooNew: the first line is of a newer version.
        FileNotFoundError: there is no such log.
        OSError: it cannot be read.
    """
    faults = LogFaults() if faults is None else faults
    dropped = dropped_in(path, before_turn_id)
    end, state = 0, None
    adding = _Adding(path=path, faults=faults, with_history=with_history, thorough=thorough)
    for line in scan_lines(path):
        end = line.end
        adding.number += 1
        if not dropped.has(line.type, line.offset):
            state = adding.add(state, line)
    faults.torn_bytes = max(0, path.stat().st_size - end)
    if state is None:
        raise FirstLineDamaged if adding.number else NotARollout
    if not with_history and state.history:
        state.history, state.history_left_out = [], True
    return state


def add_up(state: ThreadState, lines: Iterable[LogLine], path: Path) -> ThreadState:
    """Take lines of a log into account, with what the model sees.

    Raises:
        OSError: the lines cannot be read.
    """
    adding = _Adding(path=path, faults=LogFaults(), with_history=True)
    for adding.number, line in enumerate(lines, start=1):
        adding.add(state, line)
    return state


def read_created(path: Path) -> ThreadCreated:
    """Read the first line alone.

    Raises:
        NotARollout, FirstLineDamaged, LogTooNew, OSError: see `load_state`.
    """
    line = next(scan_lines(path), None)
    if line is None:
        raise NotARollout
    adding = _Adding(path=path, faults=LogFaults(), with_history=False, number=1)
    if (state := adding.add(None, line)) is None:
        raise FirstLineDamaged
    return state.created


@dataclass(slots=True, kw_only=True)
class _Adding:
    """Lines that are taken into account one after the other."""

    path: Path
    faults: LogFaults
    with_history: bool
    thorough: bool = False
    number: int = 0
    """Of the line that comes next, from 1."""

    def add(self, state: ThreadState | None, line: LogLine) -> ThreadState | None:
        if state is not None and self._needs_no_reading(state, line):
            if self._looks_whole(line):
                _note(state, line)
            return state
        record = self._read(line)
        if record is None:
            return state
        if state is not None:
            state.apply(record, len(line.content))
            return state
        if isinstance(record, ThreadCreated):
            return begin(record)
        raise FirstLineDamaged

    def _needs_no_reading(self, state: ThreadState, line: LogLine) -> bool:
        if line.type == "itemCompleted":
            return bool(state.preview) or item_kind(line.content) is not ItemKind.USER
        if line.type != "historyAppended" or self.with_history:
            return False
        # From its first signal on, what becomes of a thread's signals shows in its history.
        return not any(state.signals) and _SIGNALS not in line.content

    def _looks_whole(self, line: LogLine) -> bool:
        if self.thorough:
            return self._read(line) is not None
        # What a disk spoils are bytes in a row, mostly to zeros, or the end.
        if line.content.endswith(b"}\n") and b"\0" not in line.content:
            return True
        self.faults.add_damaged(self.number)
        return False

    def _read(self, line: LogLine) -> Record | None:
        record = parse_record(line.content)
        if record is None:
            if not is_newer(line.content):
                self.faults.add_damaged(self.number)
            elif self.number == 1:
                raise LogTooNew(self.path)
            else:
                self.faults.add_newer(self.number)
        return record


def _note(state: ThreadState, line: LogLine) -> None:
    state.updated_at_ms = max(state.updated_at_ms, line.at_ms)
    if line.type == "itemCompleted":
        state.keep(line.content, len(line.content))
    elif not line.content.endswith(_NO_ITEMS):
        state.history_left_out = True
