"""A thread in memory, with the only pen that writes its log."""

import logging
from collections.abc import Callable, Sequence

import anyio
import anyio.to_thread

from app_server.threads.rollout import RolloutWriter
from app_server.threads.state import ThreadState
from protocol.rollout import Record

logger = logging.getLogger(__name__)


class LiveThread:
    """State that changes only by records that are in the log first."""

    def __init__(
        self,
        state: ThreadState,
        writer: RolloutWriter | None,
        changed: Callable[[ThreadState], None],
        warnings: Sequence[str] = (),
    ) -> None:
        """`writer` None keeps the thread in memory alone; `changed` hears of every append.

        `warnings` say what could not be read when it was loaded.
        """
        self.state = state
        self._writer = writer
        self._changed = changed
        self._warnings = list(warnings)
        self._owed: list[Record] = []
        self._watch: Callable[[ThreadState], None] = lambda _: None
        self._pen = anyio.Lock()

    @property
    def id(self) -> str:
        """The thread's id."""
        return self.state.id

    @property
    def ephemeral(self) -> bool:
        """Whether the thread is in memory alone."""
        return self._writer is None

    def take_warnings(self) -> list[str]:
        """Return what nobody was told yet of how the thread was loaded."""
        taken, self._warnings = self._warnings, []
        return taken

    def watch(self, changed: Callable[[ThreadState], None]) -> None:
        """Let somebody else hear of every append; never waits."""
        self._watch = changed

    async def append(self, *records: Record, sync: bool = True) -> None:
        """Add records to the log, then to the state; in the order of the calls.

        With `sync` they are on disk afterwards. Cancelling waits for a write that has begun, and
        what was written is applied.

        Raises:
            OSError: the disk refused; nothing was added.
        """
        async with self._pen:
            with anyio.CancelScope(shield=True):
                due = (*self._owed, *records)
                if self._writer is not None:
                    await anyio.to_thread.run_sync(self._write, self._writer, due, sync)
                self._owed.clear()
                for record in due:
                    self.state.apply(record)
        self._changed(self.state)
        self._watch(self.state)

    def owe(self, *records: Record) -> None:
        """Put records that the disk refused before those of the next append."""
        self._owed.extend(records)

    @staticmethod
    def _write(writer: RolloutWriter, records: Sequence[Record], sync: bool) -> None:
        writer.append(records, sync=sync)

    async def aclose(self) -> None:
        """Put the pen down, after what is owed; closing twice is harmless."""
        if self._owed:
            try:
                await self.append()
            except OSError as exc:
                logger.warning("the end of thread %s cannot be written: %s", self.id, exc)
        async with self._pen:
            writer, self._writer = self._writer, None
            if writer is not None:
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(writer.close)
