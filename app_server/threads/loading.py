"""A log of any size to a ThreadState, in one pass and in bounded memory. Everything here blocks.

What the model sees is read as a whole; of what clients see, only what stays in memory.
"""

import logging
from collections.abc import Iterable
from pathlib import Path

from app_server.threads.lines import LogLine, scan_lines
from app_server.threads.outline import ItemKind, item_kind
from app_server.threads.reverts import dropped_in
from app_server.threads.state import NotARollout, ThreadState, begin
from protocol.rollout import ThreadCreated, parse_record

logger = logging.getLogger(__name__)

_SIGNALS = b'"signals":['
_NO_ITEMS = b'"items":[]}\n'


def load_state(
    path: Path, *, with_history: bool = True, before_turn_id: str | None = None
) -> ThreadState:
    """Add up what a log says; lines that make no sense are skipped, a torn last one is dropped.

    Without `with_history` the state's `history` stays empty, for those who only look. With
    `before_turn_id` the state is as a revert to before that turn would leave it.

    Raises:
        NotARollout: there is no record, or the first one does not create a thread.
        FileNotFoundError: there is no such log.
        OSError: it cannot be read.
    """
    dropped = dropped_in(path, before_turn_id)
    lines = (line for line in scan_lines(path) if not dropped.has(line.type, line.offset))
    state = add_up(None, lines, path, with_history=with_history)
    if state is None:
        raise NotARollout
    if not with_history and state.history:
        state.history, state.history_left_out = [], True
    return state


def add_up(
    state: ThreadState | None, lines: Iterable[LogLine], path: Path, *, with_history: bool = True
) -> ThreadState | None:
    """Take lines of a log into account; None if there is no state yet and no line begins one.

    Raises:
        NotARollout, OSError: see `load_state`.
    """
    for line in lines:
        if state is not None and _needs_no_reading(state, line, with_history):
            _note(state, line)
        else:
            state = _read(state, line, path)
    return state


def _needs_no_reading(state: ThreadState, line: LogLine, with_history: bool) -> bool:
    if line.type == "itemCompleted":
        return bool(state.preview) or item_kind(line.content) is not ItemKind.USER
    if line.type != "historyAppended" or with_history:
        return False
    # From its first signal on, what becomes of a thread's signals shows in its history.
    return not any(state.signals) and _SIGNALS not in line.content


def _note(state: ThreadState, line: LogLine) -> None:
    state.updated_at_ms = max(state.updated_at_ms, line.at_ms)
    if line.type == "itemCompleted":
        state.keep(line.content, len(line.content))
    elif not line.content.endswith(_NO_ITEMS):
        state.history_left_out = True


def _read(state: ThreadState | None, line: LogLine, path: Path) -> ThreadState | None:
    record = parse_record(line.content)
    if record is None:
        logger.warning("%s: skipped a line at byte %d", path, line.offset)
    elif state is not None:
        state.apply(record, len(line.content))
    elif isinstance(record, ThreadCreated):
        return begin(record)
    else:
        raise NotARollout
    return state
