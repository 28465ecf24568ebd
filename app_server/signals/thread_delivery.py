"""Delivery: what the ledger has accepted for a thread goes into it, and its entries follow its log.

Before it the schedule: when threads are worked on for their signals, and how many are loaded at a
time.
Source: docs/signals.md, "Order", "Stages", "Failures, and what to do", "Bounds".
"""

import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from enum import Enum, auto

import anyio
from pydantic_core import from_json

from app_server.config.values import ConfigError
from app_server.mcp.errors import RequiredServersFailed
from app_server.sessions.input import InboxMessage
from app_server.signals.entries import Effects, Entries
from app_server.signals.notifications import SignalPorts, settings_as_stored
from app_server.signals.recipients import NoRecipient
from app_server.threads.failures import (
    Holder,
    ThreadArchived,
    ThreadBusy,
    ThreadDamaged,
    ThreadNotFound,
    ThreadTooNew,
)
from app_server.threads.ledger import Entry
from app_server.turns.slot import SessionClosed
from protocol.log.rollout import SignalMark

RETRY_S = (1.0, 2.0, 5.0, 15.0, 60.0)
"""Until the next try for a thread that cannot be had now; the last one repeats."""

AT_ONCE = float("-inf")
"""A time that has come, whatever the clock says."""


class Schedule:
    """The next time of each thread that has one, in seconds of the event loop's clock."""

    def __init__(
        self,
        now_s: Callable[[], float] = anyio.current_time,
        retry_s: Sequence[float] = RETRY_S,
    ) -> None:
        """Retry after the seconds of `retry_s`, of which the last repeat."""
        self._now_s = now_s
        self._retry_s = retry_s
        self._times: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        self._changed = anyio.Event()

    def add(self, thread_id: str, at_s: float = AT_ONCE) -> None:
        """Schedule a thread for a time, or leave it at an earlier one; never waits."""
        self._times[thread_id] = min(at_s, self._times.get(thread_id, at_s))
        self._changed.set()

    def add_after(self, thread_id: str, delay_s: float) -> None:
        """Schedule a thread after a delay, or leave it at an earlier time; never waits."""
        self.add(thread_id, self._now_s() + max(delay_s, 0.0))

    def add_retry(self, thread_id: str) -> float:
        """Plan the next try for a thread that cannot be had now; returns how long it is until."""
        tries = self._failures[thread_id] = self._failures.get(thread_id, 0) + 1
        delay_s = self._retry_s[min(tries, len(self._retry_s)) - 1]
        self.add_after(thread_id, delay_s)
        return delay_s

    def note_success(self, thread_id: str) -> None:
        """Reset the backoff of a thread."""
        self._failures.pop(thread_id, None)

    async def due(self) -> set[str]:
        """Return the threads that are due, and plan them no more; waits until there are some."""
        while True:
            self._changed = anyio.Event()
            now_s = self._now_s()
            due = {thread_id for thread_id, at_s in self._times.items() if at_s <= now_s}
            if due:
                for thread_id in due:
                    del self._times[thread_id]
                return due
            next_s = min(self._times.values(), default=float("inf"))
            with anyio.move_on_after(next_s - now_s):
                await self._changed.wait()


MAX_LOADING = 64
"""Threads that are loaded at a time, however slowly."""

MAX_RECENT = 8
"""Threads whose loading began less than SLOW_S ago."""

SLOW_S = 2.0


class LoadingPlaces:
    """Lets threads in as long as there is room, in the order in which they come."""

    def __init__(self) -> None:
        self._began_s: dict[str, float] = {}
        self._first_in_line = anyio.Lock()
        self._left = anyio.Event()

    @asynccontextmanager
    async def place(self, thread_id: str) -> AsyncIterator[None]:
        """Wait for a place and hold it; a thread has one at a time."""
        async with self._first_in_line:
            while (wait_s := self._full_for_s()) > 0:
                self._left = anyio.Event()
                with anyio.move_on_after(wait_s):
                    await self._left.wait()
            self._began_s[thread_id] = anyio.current_time()
        try:
            yield
        finally:
            del self._began_s[thread_id]
            self._left.set()

    def _full_for_s(self) -> float:
        """Return the seconds until the next place is free; 0 when there is room."""
        if len(self._began_s) >= MAX_LOADING:
            return float("inf")
        # In their order: those that began first are slow first.
        recent = [began_s + SLOW_S - anyio.current_time() for began_s in self._began_s.values()]
        recent = [left_s for left_s in recent if left_s > 0]
        return 0.0 if len(recent) < MAX_RECENT else recent[-MAX_RECENT]


logger = logging.getLogger(__name__)

LASTING = (
    NoRecipient,
    ThreadArchived,
    ThreadDamaged,
    ThreadNotFound,
    ThreadTooNew,
    ConfigError,
    RequiredServersFailed,
)
"""Errors of loading or reading a thread after which no later try is made."""


class Progress(Enum):
    """How far the delivery to a thread has come."""

    DONE = auto()
    """It took what it can take now; the schedule, or the next append to its log, brings it back."""
    MUST_LOAD = auto()
    """Something waits until the thread has been loaded."""


class ThreadDelivery:
    """Delivers into any thread."""

    def __init__(self, ports: SignalPorts, entries: Entries, schedule: Schedule) -> None:
        self._ports = ports
        self._entries = entries
        self._schedule = schedule
        self._places = LoadingPlaces()
        self._being_loaded = set[str]()
        self.held_elsewhere = set[str]()
        """Threads with open entries that another server held at the last look: it delivers them."""

    async def holder_elsewhere(self, thread_id: str) -> Holder | None:
        """Return which other server holds a thread; None: none does."""
        if self._ports.sessions.find(thread_id) is not None:
            return None
        try:
            await self._ports.store.require_free(thread_id)
        except ThreadBusy as exc:
            return exc.holder
        return None

    async def advance(self, thread_id: str, effects: Effects) -> Progress:
        """Have a thread take what it can now.

        The caller holds the lock of the thread. One that cannot be had now is scheduled for later.
        """
        progress = Progress.DONE
        with self._postponing(thread_id, effects):
            progress = await self._take_waiting(thread_id, effects)
            if progress is Progress.DONE:
                self._schedule.note_success(thread_id)
        return progress

    async def _take_waiting(self, thread_id: str, effects: Effects) -> Progress:
        await self.follow_log(thread_id, effects)
        if await self.holder_elsewhere(thread_id) is not None:
            self._note_held_elsewhere(thread_id)
            return Progress.DONE
        ends_ms = await self._entries.expire(thread_id, effects)
        if ends_ms is not None:
            self._schedule.add_after(thread_id, (ends_ms - self._ports.clock.now_ms()) / 1000)
        session = self._ports.sessions.find(thread_id)
        if session is not None:
            # It may have been loaded just now, from a log to which another server has appended.
            await self._entries.follow(session.log.state, effects)
        waiting = self._entries.open.waiting(thread_id)
        if not waiting:
            return Progress.DONE
        if session is None or session.slot.closed or thread_id in self._being_loaded:
            return Progress.MUST_LOAD
        with anyio.CancelScope(shield=True):
            messages = [_inbox_message(entry) for entry in waiting]
            woken = await session.inbox.receive(messages)
            if woken is not None:
                effects.woken.append(woken)
            await self._entries.follow(session.log.state, effects)
        return Progress.DONE

    def run_effects(self, effects: Effects) -> None:
        """Send the receipts and let the turns run; once."""
        for receipt in effects.receipts:
            self._ports.notifier.announce(receipt)
        for turn in effects.woken:
            turn.run_soon()
        effects.receipts.clear()
        effects.woken.clear()

    async def load_and_advance(self, thread_id: str, lock: anyio.Lock) -> None:
        """Load a thread and have it take what waits; nothing holds its lock while it is loaded.

        `lock` is that lock. A thread that is being loaded for signals already takes these too.
        """
        if thread_id in self._being_loaded:
            return
        self._being_loaded.add(thread_id)
        effects = Effects()
        failure: Exception | None = None
        with self._postponing(thread_id, effects):
            try:
                await self._load_thread(thread_id)
            except LASTING as exc:
                failure = exc
            finally:
                self._being_loaded.discard(thread_id)
            async with lock:
                if failure is not None:
                    await self._entries.fail(thread_id, *failure_of(failure, thread_id), effects)
                elif await self.advance(thread_id, effects) is Progress.MUST_LOAD:
                    # It was unloaded again.
                    self._schedule.add_retry(thread_id)
        self.run_effects(effects)

    @contextmanager
    def _postponing(self, thread_id: str, effects: Effects) -> Iterator[None]:
        """Plan the next try where a thread cannot be had now."""
        try:
            yield
        except ThreadBusy:
            self._note_held_elsewhere(thread_id)
        except (SessionClosed, OSError) as exc:
            delay_s = self._schedule.add_retry(thread_id)
            logger.info("signals of thread %s wait %g s: %s", thread_id, delay_s, exc)
        except Exception:
            # Nobody is above this but the server, which goes on.
            logger.exception("signals of thread %s have to wait", thread_id)
            self._schedule.add_retry(thread_id)
        except BaseException:
            # Whoever asked has gone, but a turn may have been accepted.
            self.run_effects(effects)
            raise

    def _note_held_elsewhere(self, thread_id: str) -> None:
        if self._entries.open.has(thread_id):
            self.held_elsewhere.add(thread_id)

    async def _load_thread(self, thread_id: str) -> None:
        loading = self._ports.sessions.loading
        async with self._places.place(thread_id), loading.locked(thread_id) as found:
            session = found.session
            if session is None:
                if found.state.archived:
                    text = f"thread {thread_id} is archived"
                    raise NoRecipient("threadArchived", "archived", text)
                stored = await settings_as_stored(self._ports.configuration, found.state)
                session = await loading.load(found, *stored)
        if not session.clients.began:
            session.clients.status(session.status)
            session.clients.begin()

    async def follow_log(self, thread_id: str, effects: Effects) -> None:
        """Move the entries of a thread, if it is loaded, to where its log has their signals.

        Raises:
            OSError: the disk refused; nothing has changed.
        """
        session = self._ports.sessions.find(thread_id)
        if session is not None:
            await self._entries.follow(session.log.state, effects)

    async def reconcile(self, thread_id: str) -> None:
        """Bring the entries of a process that has died up to what the log says, after a start.

        A thread that has still to take some is scheduled. Nothing else is served before.
        """
        async with self._places.place(thread_id):
            if await self.holder_elsewhere(thread_id) is not None:
                self._note_held_elsewhere(thread_id)
                return
            try:
                await self._follow_stored(thread_id)
            except LASTING as exc:
                await self._entries.fail(thread_id, *failure_of(exc, thread_id), Effects())
            except Exception:
                logger.exception("signals of thread %s have to wait", thread_id)
        if self._entries.open.waiting(thread_id):
            self._schedule.add(thread_id)

    async def _follow_stored(self, thread_id: str) -> None:
        if self._ports.sessions.find(thread_id) is not None:
            await self.follow_log(thread_id, Effects())
            return
        state = await self._ports.store.read(thread_id)
        state.give_up_open_turn(state.updated_at_ms)
        await self._entries.follow(state, Effects())


def _inbox_message(entry: Entry) -> InboxMessage:
    mark = SignalMark(source=entry.source, id=entry.id, item_id=entry.item_id)
    item = from_json(entry.item)
    return InboxMessage(mark, item, entry.sender, wakes=entry.wakes, steers=entry.steers)


def failure_of(error: Exception, thread_id: str) -> tuple[str, str]:
    """Return `error.code` and `error.message` of the receipts, for one of the LASTING errors."""
    match error:
        case NoRecipient():
            return error.code, str(error)
        case ThreadNotFound():
            return "threadNotFound", "the thread is gone"
        case ThreadArchived():
            return "threadArchived", f"thread {thread_id} is archived"
        case ThreadTooNew():
            return "threadNotLoadable", "a newer version of this server wrote the thread"
        case ThreadDamaged():
            return "threadNotLoadable", "the log of the thread is damaged in its first line"
        case _:
            return "threadNotLoadable", str(error)
