"""Delivery: from acceptance by the ledger to the thread's log, and the receipts of both.

The ledger says what was accepted; from there on the thread's log is the truth, and entries follow
it. Each thread is worked on by one task at a time, so signals enter it in the order of the ledger.
Source: docs/signals.md.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias
from weakref import WeakValueDictionary

import anyio
import anyio.to_thread
from pydantic_core import from_json

from app_server.config.values import Config
from app_server.runtime.clock import Clock
from app_server.sessions.errors import SessionClosed
from app_server.sessions.input.inbox import InboxMessage
from app_server.sessions.registry import Sessions
from app_server.sessions.session import ThreadSession
from app_server.signals.acceptance import WAKE_WINDOW_MS, accepted, digest_of
from app_server.signals.entries import Announce, Effects, Entries
from app_server.signals.failures import LASTING, failure_of
from app_server.signals.ledger import Entry, EntryPage, Ledger
from app_server.signals.recipients import NoRecipient, Recipients
from app_server.threads.log.state.thread import ThreadState
from app_server.threads.store import ThreadBusy, ThreadStore
from protocol.rollout import Settings, SignalMark, SignalRecalled
from protocol.signals import MAX_WAITING_SIGNALS, SignalDeliverParams, SignalStage

logger = logging.getLogger(__name__)

RETRY_S = (1.0, 2.0, 5.0, 15.0, 60.0)
"""Until the next try for a thread that cannot be had now; the last one repeats."""
MAX_LOADING = 8
"""Threads that are read or loaded for signals at a time."""
FORGET_EVERY_S = 3600.0
"""How often signals that are long over are removed from the ledger."""

Configure: TypeAlias = Callable[[ThreadState], Awaitable[tuple[Config, Settings]]]


class SignalConflict(Exception):
    """The id is known, with another body or another target."""


class SignalUnknown(Exception):
    """No signal has this source and id."""


class TooManyWaiting(Exception):
    """The thread has as many signals as may wait that no model has seen."""


class NotRecallable(Exception):
    """The signal is over, or a model has seen it or is being asked with it."""

    def __init__(self, stage: SignalStage) -> None:
        super().__init__(stage)
        self.stage = stage


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalPorts:
    """What delivery works with."""

    ledger: Ledger
    store: ThreadStore
    sessions: Sessions
    clock: Clock
    announce: Announce
    configure: Configure
    """Gives the settings for a thread that has to be loaded."""


@dataclass(slots=True)
class Delivery:
    """An answer, and what should follow it."""

    entry: Entry
    effects: Effects = field(default_factory=list)


class Signals:
    """All signals of this home.

    What clients ask and what delivers are one class, as both move the same entries from stage to
    stage, under the lock of a thread or of a signal.
    """

    def __init__(self, ports: SignalPorts) -> None:
        self._ports = ports
        self._entries = Entries(ports.ledger, ports.clock, ports.announce)
        self._recipients = Recipients(ports.store, ports.sessions)
        self._locks: WeakValueDictionary[object, anyio.Lock] = WeakValueDictionary()
        self._loading = anyio.CapacityLimiter(MAX_LOADING)
        self._due: dict[str, float] = {}
        self._grown: set[str] = set()
        self._failures: dict[str, int] = {}
        self._nudged = anyio.Event()
        self._reconciled = anyio.Event()

    async def load(self) -> None:
        """Take in what is open in the ledger; comes before everything else.

        Raises:
            OSError: the ledger cannot be read.
        """
        await self._entries.load()

    # What clients ask.

    async def deliver(self, params: SignalDeliverParams) -> Delivery:
        """Accept a signal and take it as far as it goes now; once, however often it is said.

        Raises:
            NoRecipient, SignalConflict, TooManyWaiting: nothing was accepted.
            OSError: the disk refused; nothing was accepted.
        """
        await self._reconciled.wait()
        key = params.signal.source, params.signal.id
        async with self._lock(key):
            known = await self._entries.find(key)
            if known is not None:
                if known.digest != digest_of(params):
                    raise SignalConflict
                return Delivery(known)
            recipient = await self._recipients.find(params.target)
            async with self._lock(recipient.thread_id):
                await self._require_room(recipient.thread_id)
                now_ms = self._ports.clock.now_ms()
                wakes_before = await anyio.to_thread.run_sync(
                    self._ports.ledger.turns_woken_since,
                    recipient.thread_id,
                    params.signal.source,
                    now_ms - WAKE_WINDOW_MS,
                )
                item_id = self._ports.clock.new_id()
                entry = accepted(
                    params,
                    recipient,
                    item_id,
                    now_ms,
                    wakes_before,
                    thread_has_tool=self._has_tool(recipient.thread_id, params.payload_tool),
                )
                delivery = Delivery(entry)
                await self._entries.write([delivery.entry], delivery.effects)
                await self._advance_or_wait(recipient.thread_id, delivery.effects)
            try:
                delivery.entry = await self._entries.find(key) or delivery.entry
            except BaseException:
                _run(delivery.effects)
                raise
            return delivery

    def _has_tool(self, thread_id: str, name: str | None) -> bool:
        """Whether the model of a loaded thread can call a tool of this name now."""
        session = self._ports.sessions.find(thread_id)
        if name is None or session is None:
            return False
        return any(tool.raw.tool == name for tool in session.servers.tools().tools)

    async def _require_room(self, thread_id: str) -> None:
        if self._entries.open.unseen(thread_id) >= MAX_WAITING_SIGNALS:
            effects: Effects = []
            await self._follow_log(thread_id, effects)
            _run(effects)
            if self._entries.open.unseen(thread_id) >= MAX_WAITING_SIGNALS:
                raise TooManyWaiting

    def unseen(self) -> list[int]:
        """Count, for each thread that has open signals, those that no model has seen."""
        return [self._entries.open.unseen(thread_id) for thread_id in self._entries.open.threads()]

    async def read(self, source: str, signal_id: str) -> Entry:
        """Return a signal's entry.

        Raises:
            SignalUnknown
        """
        await self._reconciled.wait()
        entry = await self._entries.find((source, signal_id))
        if entry is None:
            raise SignalUnknown
        return entry

    async def list_page(
        self, thread_id: str | None, stage: SignalStage | None, cursor: str | None, limit: int
    ) -> EntryPage:
        """Return one page of entries, newest first.

        Raises:
            InvalidCursor
        """
        await self._reconciled.wait()
        return await anyio.to_thread.run_sync(
            self._ports.ledger.page, thread_id, stage, cursor, limit
        )

    async def recall(self, source: str, signal_id: str) -> Delivery:
        """Take a signal back that no model has seen; a second time it changes nothing.

        Raises:
            SignalUnknown, NotRecallable
            ThreadBusy: another process writes the thread.
            OSError: the disk refused.
        """
        entry = await self.read(source, signal_id)
        delivery = Delivery(entry)
        async with self._lock(entry.key), self._lock(entry.thread_id):
            await self._follow_log(entry.thread_id, delivery.effects)
            entry = await self.read(source, signal_id)
            match entry.stage:
                case "recalled":
                    delivery.entry = entry
                    return delivery
                case "inHistory":
                    await self._withdraw(entry)
                case "accepted":
                    pass
                case _:
                    raise NotRecallable(entry.stage)
            delivery.entry = await self._entries.recall(entry, delivery.effects)
            return delivery

    async def _withdraw(self, entry: Entry) -> None:
        session = self._ports.sessions.find(entry.thread_id)
        if session is None or session.closed:
            at_ms = self._ports.clock.now_ms()
            record = SignalRecalled(at_ms=at_ms, source=entry.source, id=entry.id)
            await self._ports.sessions.change(entry.thread_id, lambda _: [record])
        elif not await session.inbox.withdraw(entry.source, entry.id):
            raise NotRecallable(entry.stage)

    # What the work with threads says.

    def log_grew(self, state: ThreadState) -> None:
        """Hear that a thread's log has more lines; never waits."""
        if self._entries.open.has(state.id):
            self._grown.add(state.id)
            self._nudged.set()

    # The work.

    async def run(self) -> None:
        """Deliver what waits and keep receipts true, until cancelled."""
        async with anyio.create_task_group() as tasks:
            await self._reconcile()
            self._reconciled.set()
            tasks.start_soon(self._forget_old)
            while True:
                self._nudged = anyio.Event()
                for thread_id in self._take_due():
                    tasks.start_soon(self._work_on, thread_id)
                with anyio.move_on_after(self._until_next()):
                    await self._nudged.wait()

    def _take_due(self) -> set[str]:
        now_s = anyio.current_time()
        due = {thread_id for thread_id, at_s in self._due.items() if at_s <= now_s} | self._grown
        self._grown = set()
        for thread_id in due:
            self._due.pop(thread_id, None)
        return due

    def _until_next(self) -> float:
        return max(min(self._due.values(), default=float("inf")) - anyio.current_time(), 0.0)

    def _work_at(self, thread_id: str, at_s: float) -> None:
        self._due[thread_id] = min(at_s, self._due.get(thread_id, at_s))
        self._nudged.set()

    async def _work_on(self, thread_id: str) -> None:
        effects: Effects = []
        async with self._lock(thread_id):
            await self._advance_or_wait(thread_id, effects)
        _run(effects)

    async def _advance_or_wait(self, thread_id: str, effects: Effects) -> None:
        """Let a thread take what it can, or try again later; its lock is held."""
        try:
            await self._advance(thread_id, effects)
        except (SessionClosed, ThreadBusy, OSError) as exc:
            delay_s = self._try_later(thread_id)
            logger.info("signals of thread %s wait %g s: %s", thread_id, delay_s, exc)
        except Exception:
            # Nobody is above this but the server, which goes on.
            logger.exception("signals of thread %s have to wait", thread_id)
            self._try_later(thread_id)
        except BaseException:
            # Whoever asked has gone, but a turn may have been accepted.
            _run(effects)
            raise
        else:
            self._failures.pop(thread_id, None)

    def _try_later(self, thread_id: str) -> float:
        """Plan the next try for a thread that cannot be had now; returns how long it is until."""
        tries = self._failures[thread_id] = self._failures.get(thread_id, 0) + 1
        delay_s = RETRY_S[min(tries, len(RETRY_S)) - 1]
        self._work_at(thread_id, anyio.current_time() + delay_s)
        return delay_s

    async def _advance(self, thread_id: str, effects: Effects) -> None:
        await self._follow_log(thread_id, effects)
        ends_ms = await self._entries.expire(thread_id, effects)
        if ends_ms is not None:
            left_s = (ends_ms - self._ports.clock.now_ms()) / 1000
            self._work_at(thread_id, anyio.current_time() + max(left_s, 0.0))
        waiting = self._entries.open.waiting(thread_id)
        if not waiting:
            return
        try:
            session = await self._load(thread_id)
        except LASTING as exc:
            await self._entries.fail(thread_id, *failure_of(exc, thread_id), effects)
        else:
            with anyio.CancelScope(shield=True):
                reception = await session.inbox.receive(
                    [_inbox_message(entry) for entry in waiting]
                )
                effects.append(reception.begin)
                await self._entries.follow(session.thread.state, effects)

    async def _load(self, thread_id: str) -> ThreadSession:
        session = self._ports.sessions.find(thread_id)
        if session is not None and not session.closed:
            return session
        async with self._loading:
            session = await self._ports.sessions.loading.load(thread_id, self._configure)
        if not session.publisher.began:
            session.publisher.status(session.status)
            session.publisher.begin()
        return session

    async def _configure(self, state: ThreadState) -> tuple[Config, Settings]:
        if state.archived:
            raise NoRecipient("threadArchived", "archived", f"thread {state.id} is archived")
        return await self._ports.configure(state)

    async def _follow_log(self, thread_id: str, effects: Effects) -> None:
        session = self._ports.sessions.find(thread_id)
        if session is not None:
            await self._entries.follow(session.thread.state, effects)

    # After a start.

    async def _reconcile(self) -> None:
        """Bring the entries of a process that died up to what the logs say."""
        async with anyio.create_task_group() as tasks:
            for thread_id in self._entries.open.threads():
                tasks.start_soon(self._reconcile_thread, thread_id)

    async def _reconcile_thread(self, thread_id: str) -> None:
        async with self._loading:
            try:
                await self._follow_stored(thread_id)
            except LASTING as exc:
                await self._entries.fail(thread_id, *failure_of(exc, thread_id), [])
            except Exception:
                logger.exception("signals of thread %s have to wait", thread_id)
        if self._entries.open.waiting(thread_id):
            self._work_at(thread_id, anyio.current_time())

    async def _follow_stored(self, thread_id: str) -> None:
        if self._ports.sessions.find(thread_id) is not None:
            await self._follow_log(thread_id, [])
            return
        state = await self._ports.store.read(thread_id)
        state.give_up_open_turn(state.updated_at_ms)
        await self._entries.follow(state, [])

    async def _forget_old(self) -> None:
        while True:
            now_ms = self._ports.clock.now_ms()
            try:
                removed = await anyio.to_thread.run_sync(self._ports.ledger.forget_old, now_ms)
                logger.debug("forgot %d signals that are long over", removed)
            except OSError:
                logger.exception("the ledger of signals cannot be tidied")
            await anyio.sleep(FORGET_EVERY_S)

    def _lock(self, name: object) -> anyio.Lock:
        return self._locks.setdefault(name, anyio.Lock())


def _inbox_message(entry: Entry) -> InboxMessage:
    mark = SignalMark(source=entry.source, id=entry.id, item_id=entry.item_id)
    item = from_json(entry.item)
    return InboxMessage(mark, item, entry.sender, wakes=entry.wakes, steers=entry.steers)


def _run(effects: Effects) -> None:
    for effect in effects:
        effect()
    effects.clear()
