"""A thread in memory, with the only writer of its log."""

import errno
import logging
from collections.abc import Callable, Sequence
from typing import NewType, Protocol

import anyio
import anyio.to_thread

from app_server.threads.failures import TAKEN_OVER, OwnershipLost
from app_server.threads.log.state import ThreadState
from app_server.threads.operations import mark
from protocol.log.metadata import OperationLogged
from protocol.log.rollout import Record, TurnsReverted, TurnStarted, render_record

logger = logging.getLogger(__name__)


class LogClosed(OSError):
    """The thread was unloaded, and its log is perhaps somebody else's by now."""

    def __init__(self, thread_id: str) -> None:
        super().__init__(errno.EBADF, "the thread was unloaded", thread_id)


class LogFollower(Protocol):
    """An object that follows the logs of loaded threads."""

    def log_grew(self, state: ThreadState) -> None:
        """Follow an append to a log; called after every one, never waits."""


LogEnd = NewType("LogEnd", int)
"""End of a log at one moment, as its store counts it."""


class RecordWriter(Protocol):
    """The only writer of a thread's log. What it has begun must not be cancelled."""

    @property
    def end(self) -> LogEnd:
        """End of the log: whole records, and whole groups of them."""

    @property
    def is_lost(self) -> bool:
        """Whether others write the log, or may do so at any time; no I/O."""

    async def append(
        self, records: Sequence[Record], before: ThreadState, *, sync: bool
    ) -> Sequence[int]:
        """Add records; all are there afterwards, or none. Returns the size of each.

        With `sync` they outlive the machine when this returns; without, this process. `before` is
        what the log adds up to without them.

        Raises:
            OSError: the store refused; nothing was added.
        """

    async def read_before(self, turn_id: str) -> ThreadState:
        """Read the log again, as a revert to before a turn will leave it.

        Raises:
            OSError: it cannot be read.
        """

    async def require_owned(self) -> None:
        """Make sure that nobody else may write the thread, before what must not happen twice.

        Raises:
            OwnershipLost: others may.
        """

    async def close(self) -> None:
        """Give the thread free."""


class LiveThread:
    """State that changes only by records that are in the log first."""

    def __init__(
        self,
        state: ThreadState,
        writer: RecordWriter | None,
        changed: Callable[[ThreadState], None],
        warnings: Sequence[str] = (),
    ) -> None:
        """`writer` None keeps the thread in memory alone; `changed` is called after every append.

        `warnings` say what could not be read when it was loaded.
        """
        self.id = state.id
        self.ephemeral = state.created.ephemeral
        """Whether the thread is in memory alone."""
        self.state = state
        self.followers: Sequence[LogFollower] = ()
        """Objects whose `log_grew` is called after every append."""
        self._writer = writer
        self.changed = changed
        self._warnings = list(warnings)
        self._deferred: list[Record] = []
        self._closed = False
        self.is_abandoned = False
        """Whether its log was found to be another server's."""
        self._write_lock = anyio.Lock(fast_acquire=True)

    @property
    def is_lost(self) -> bool:
        """Whether others write the log, or may do so at any time; see RecordWriter.is_lost."""
        return self._writer is not None and self._writer.is_lost

    def take_warnings(self) -> list[str]:
        """Return and clear the warnings from loading the thread."""
        taken, self._warnings = self._warnings, []
        return taken

    async def append(self, *records: Record, sync: bool = True) -> None:
        """Add records to the log, then to the state; in the order of the calls.

        With `sync` they are on disk afterwards. Cancelling waits for a write that has begun, and
        what was written is applied.

        Raises:
            LogClosed: the thread was unloaded; nothing was added.
            OSError: the disk refused; nothing was added.
        """
        async with self._write_lock:
            if self._closed or self._deferred:
                await self._settle()
            if records:
                await self._write(self._marked(records), sync=sync)

    async def change(
        self, decide: Callable[[ThreadState], Sequence[Record]], *, sync: bool = True
    ) -> Sequence[Record]:
        """Add what `decide` makes of the state; nothing else changes it in between.

        Returns what was added. What `decide` raises comes out, and nothing was added. See `append`.
        """
        async with self._write_lock:
            if self._closed or self._deferred:
                await self._settle()
            records = decide(self.state)
            if records:
                await self._write(self._marked(records), sync=sync)
            return records

    def _marked(self, records: Sequence[Record]) -> Sequence[Record]:
        """Add the operation that records belong to; they are there together, or not at all."""
        operation_id = mark()
        if operation_id is None:
            return records
        begun = next((one.turn_id for one in records if isinstance(one, TurnStarted)), None)
        running = self.state.open_turn
        turn_id = running.id if begun is None and running is not None else begun
        logged = OperationLogged(
            at_ms=records[0].at_ms,
            operation_id=operation_id,
            turn_id=turn_id,
            lines=len(records),
        )
        return logged, *records

    def _require_open(self) -> None:
        if self.is_abandoned:
            raise OwnershipLost(TAKEN_OVER, "ownerLost", retriable=True)
        if self._closed:
            raise LogClosed(self.id)

    def defer(self, *records: Record) -> None:
        """Put records that the disk refused before those of the next append."""
        self._deferred.extend(records)

    async def settle(self) -> None:
        """Write what was deferred; what cannot be written now stays deferred.

        Raises:
            LogClosed, OSError: see `append`.
        """
        await self.append()

    async def require_owned(self) -> None:
        """Make sure that nobody else may write the thread, before what must not happen twice.

        What was appended before is in the log; see RecordWriter.require_owned.

        Raises:
            LogClosed: the thread was unloaded.
            OwnershipLost: others write it, or may do so.
        """
        self._require_open()
        if self._writer is not None:
            await self._writer.require_owned()

    def abandon(self) -> None:
        """Write nothing more: the log is another server's, which ends what was left open."""
        self._closed = self.is_abandoned = True
        self._deferred.clear()

    async def _settle(self) -> None:
        """Write what was deferred, which comes before all else; a closed log takes nothing."""
        self._require_open()
        await self._write(tuple(self._deferred), sync=True)
        self._deferred.clear()

    async def _write(self, records: Sequence[Record], *, sync: bool) -> None:
        with anyio.CancelScope(shield=True):
            if self._writer is not None:
                sizes = await self._writer.append(records, self.state, sync=sync)
            else:
                sizes = [len(render_record(record)) for record in records]
            for record, size in zip(records, sizes, strict=True):
                self.state.apply(record, size)
        self._notify()

    def _notify(self) -> None:
        self.changed(self.state)
        for follower in self.followers:
            follower.log_grew(self.state)

    async def revert(self, record: TurnsReverted) -> None:
        """Drop a turn and all after it: in the log, then in the state, which is read anew.

        Cancelling waits for what has begun.

        Raises:
            LogClosed: the thread was unloaded; nothing was dropped.
            OSError: the disk refused; nothing was dropped.
        """
        async with self._write_lock:
            if self._closed or self._deferred:
                await self._settle()
            writer = self._writer
            assert writer is not None, "only stored threads have a log to read again"
            with anyio.CancelScope(shield=True):
                # Read before it is written: a log that cannot be read is not changed.
                left = await writer.read_before(record.before_turn_id)
                record.signals = self.state.signals.missing_in(left.signals) or None
                records = self._marked([record])
                await writer.append(records, self.state, sync=True)
                for one in records:
                    left.apply(one)
                self.state = left
        self._notify()

    async def log_end(self) -> LogEnd | None:
        """Return the end of the log; None after its writer was closed."""
        async with self._write_lock:
            return None if self._writer is None else self._writer.end

    async def aclose(self, last: Callable[[ThreadState], None] | None = None) -> None:
        """Close the log, after what was deferred; closing twice is harmless.

        `last` is called in a worker thread while nobody else can have the log yet.
        """
        async with self._write_lock:
            if self._closed:
                return
            try:
                if self._deferred:
                    await self._settle()
            except OSError as exc:
                logger.warning("the end of thread %s cannot be written: %s", self.id, exc)
            self._closed = True
            writer, self._writer = self._writer, None
            if writer is not None:
                with anyio.CancelScope(shield=True):
                    try:
                        if last is not None:
                            await anyio.to_thread.run_sync(last, self.state)
                    finally:
                        await writer.close()
