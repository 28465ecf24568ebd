"""Rows of the index as lists show them, made once for as long as nothing in them changes."""

from collections.abc import Callable
from dataclasses import dataclass

from app_server.handlers.views.threads import read_state_of_row, thread_of_row
from app_server.threads.filing import FilingState
from app_server.threads.index.rows import ThreadRow
from protocol.threads.thread import Thread, ThreadReadState, ThreadStatus

MAX_SHOWN = 256
"""Threads; with more of them everything is forgotten."""


@dataclass(frozen=True, slots=True)
class _Shown:
    row: ThreadRow
    status: ThreadStatus
    filing: FilingState
    thread: Thread
    read_state: ThreadReadState


class ShownRows:
    """What was made of the rows that lists have shown lately; nobody may change what it gives."""

    def __init__(self, path_of: Callable[[str], str]) -> None:
        """`path_of` says where the log of a listed thread is."""
        self._path_of = path_of
        self._shown: dict[str, _Shown] = {}

    def show(
        self, row: ThreadRow, status: ThreadStatus, filing: FilingState
    ) -> tuple[Thread, ThreadReadState]:
        """Show a thread from the index, and how far it was read."""
        known = self._shown.get(row.id)
        # An index that was not read again gives the same rows, and filing is replaced as a whole.
        if (
            known is None
            or known.row is not row
            or known.filing is not filing
            or known.status != status
        ):
            thread = thread_of_row(row, status, self._path_of(row.id), filing)
            known = _Shown(row, status, filing, thread, read_state_of_row(row))
            if len(self._shown) >= MAX_SHOWN:
                self._shown.clear()
            self._shown[row.id] = known
        return known.thread, known.read_state
