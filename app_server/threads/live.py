"""A thread in memory, with the only pen that writes its log."""

from collections.abc import Callable, Sequence

import anyio
import anyio.to_thread

from app_server.threads.rollout import RolloutWriter
from app_server.threads.state import ThreadState
from protocol.rollout import Record


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

    async def append(self, *records: Record, sync: bool = True) -> None:
        """Add records to the log, then to the state; in the order of the calls.

        With `sync` they are on disk afterwards. Cancelling waits for a write that has begun, and
        what was written is applied.

        Raises:
            OSError: the disk refused; nothing was added.
        """
        async with self._pen:
            with anyio.CancelScope(shield=True):
                if self._writer is not None:
                    await anyio.to_thread.run_sync(self._write, self._writer, records, sync)
                for record in records:
                    self.state.apply(record)
        self._changed(self.state)

    @staticmethod
    def _write(writer: RolloutWriter, records: Sequence[Record], sync: bool) -> None:
        writer.append(records, sync=sync)

    async def aclose(self) -> None:
        """Put the pen down; closing twice is harmless."""
        async with self._pen:
            writer, self._writer = self._writer, None
            if writer is not None:
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(writer.close)
