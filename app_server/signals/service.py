"""Signals: what clients ask of them, and the task that keeps delivering them.

The ledger says what was accepted; from there on the thread's log is the truth, and entries follow
it. Each thread is worked on under a lock of its entries, so signals enter it in the order of the
ledger.
Source: docs/signals.md.
"""

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

import anyio
import anyio.to_thread
from pydantic_core import to_json

from app_server.signals.entries import Effects, Entries
from app_server.signals.notifications import SignalPorts
from app_server.signals.recipients import Recipient, Recipients
from app_server.signals.thread_delivery import RETRY_S, Progress, Schedule, ThreadDelivery
from app_server.threads.ledger import Entry, EntryPage, SignalLedger
from app_server.threads.log.state import ThreadState
from protocol.log.rollout import SignalRecalled
from protocol.signals.delivery import (
    MAX_WAITING_SIGNALS,
    SignalDeliverParams,
    SignalRecallParams,
    SignalStage,
    ThreadSignalTarget,
)
from protocol.signals.frame import Framed, frame_item

MAX_WAKES = 8
"""Turns that one source may begin in one thread within WAKE_WINDOW_MS."""
WAKE_WINDOW_MS = 60_000


def new_entry(
    params: SignalDeliverParams,
    recipient: Recipient,
    item_id: str,
    now_ms: int,
    wakes_before: int,
    *,
    thread_has_tool: bool = False,
) -> Entry:
    """Return the ledger entry of a signal that is delivered for the first time.

    `wakes_before` counts the turns that its source began in the thread within the window; one that
    would begin more is passive, and its receipt says so. One whose time is over is expired.
    `thread_has_tool` says whether the model can call the tool that the sender names.
    """
    signal = params.signal
    wakes = params.mode == "wake"
    is_limited = wakes and wakes_before >= MAX_WAKES
    ends_ms = None
    if signal.ttl_seconds is not None:
        born_ms = now_ms if signal.created_at is None else signal.created_at * 1000
        ends_ms = born_ms + signal.ttl_seconds * 1000
    over = ends_ms is not None and ends_ms <= now_ms
    framed = Framed(
        signal.source,
        signal.type,
        signal.sender,
        signal.id,
        signal.summary,
        params.payload_tool if thread_has_tool else None,
    )
    return Entry(
        source=signal.source,
        id=signal.id,
        digest=digest_of(params),
        thread_id=recipient.thread_id,
        sender=signal.sender,
        item="" if over else to_json(frame_item(framed)).decode(),
        wakes=wakes and not is_limited,
        steers=params.on_busy == "steer",
        stage="expired" if over else "accepted",
        recipient_state=recipient.state,
        at_ms=now_ms,
        item_id=item_id,
        expires_at_ms=ends_ms,
        error_code="wakeLimit" if is_limited else None,
        error_message=_WAKE_LIMITED if is_limited else None,
    )


_WAKE_LIMITED = f"delivered as passive: a source may wake a thread {MAX_WAKES} times a minute"


def digest_of(params: SignalDeliverParams) -> str:
    """Return a digest by which a signal sent again differs from another one under its id."""
    # A receiver may come to know its tool between two tries.
    body = params.model_dump(mode="json", exclude={"payload_tool"})
    return hashlib.sha256(to_json(body)).hexdigest()


logger = logging.getLogger(__name__)

FORGET_EVERY_S = 3600.0
"""Seconds between removals of expired entries from the ledger."""

LOOK_S = 0.5
"""Between two looks at what other servers have written, and at which threads they hold."""

MAX_LOOK_SHARE = 0.05
"""Of the time that is spent on looking; with very many threads the looks are rarer."""
MAX_LOOK_S = 5.0
"""Between two looks at most: one may also last as the disk or the database did not answer."""


def pause_after(look_s: float) -> float:
    """Return the seconds between a look of `look_s` at what other servers do and the next one."""
    return min(max(LOOK_S, look_s / MAX_LOOK_SHARE), MAX_LOOK_S)


class SignalConflict(Exception):
    """The id is known, with another body or another target."""


class SignalUnknown(Exception):
    """No signal has this source and id."""


class TooManyWaiting(Exception):
    """The thread has as many signals as may wait that no model has seen."""


class NotRecallable(Exception):
    """The signal is over, or a model has seen it or is being asked with it."""

    def __init__(self, stage: SignalStage) -> None:
        self.stage = stage


@dataclass(slots=True)
class Outcome:
    """Result of a call; `Signals.follow_up` comes once it was answered."""

    entry: Entry
    """As the answer shows it."""
    effects: Effects = field(default_factory=Effects)
    must_load: bool = False
    """Whether the thread of the entry has to be loaded."""


class Signals:
    """Signals of this home; an entry is moved under the lock of its thread."""

    def __init__(
        self,
        ledger: SignalLedger,
        ports: SignalPorts,
        *,
        retry_s: Sequence[float] = RETRY_S,
        forget_every_s: float = FORGET_EVERY_S,
    ) -> None:
        """Retry threads that cannot be had after the seconds of `retry_s` (see `Schedule`).

        Expired entries are removed from the ledger every `forget_every_s` seconds.
        """
        self._ledger = ledger
        self._forget_every_s = forget_every_s
        self._ports = ports
        self._entries = Entries(ledger, ports.clock)
        self._recipients = Recipients(ports.store, ports.sessions)
        self._schedule = Schedule(retry_s=retry_s)
        self._delivery = ThreadDelivery(ports, self._entries, self._schedule)
        self._locks: WeakValueDictionary[object, anyio.Lock] = WeakValueDictionary()
        self._reconciled = anyio.Event()
        self._version: object = None
        """Version of the ledger at the last look."""

    async def load(self) -> None:
        """Read the open entries of the ledger, and follow the logs of loaded threads from then on.

        It comes before everything else.

        Raises:
            OSError: the ledger cannot be read.
        """
        await self._entries.load()
        self._ports.sessions.log_followers.append(self)

    # What clients ask.

    async def deliver(self, params: SignalDeliverParams, *, of_peer: bool = False) -> Outcome:
        """Accept a signal, once, however often it is said; a loaded thread takes it at once.

        Nothing waits for a thread to be loaded: `follow_up` schedules that. The signal of a thread
        that another server holds is handed to that one, if it is not `of_peer` already.

        Raises:
            NoRecipient, SignalConflict, TooManyWaiting: nothing was accepted.
            RpcError: the server that holds the thread refuses it.
            OSError: the disk refused; nothing was accepted.
        """
        await self._reconciled.wait()
        key = params.signal.source, params.signal.id
        async with self._lock(key):
            known = await self._find(key)
            if known is None and not of_peer:
                known = await self._hand_on(params)
            if known is not None:
                if known.digest != digest_of(params):
                    raise SignalConflict
                return Outcome(known)
            recipient = await self._recipients.find(params.target)
            async with self._lock(recipient.thread_id):
                outcome = await self._accept(params, recipient)
                progress = await self._delivery.advance(recipient.thread_id, outcome.effects)
            outcome.must_load = progress is Progress.MUST_LOAD
            try:
                outcome.entry = await self._entries.find(key) or outcome.entry
            except BaseException:
                self.follow_up(outcome)
                raise
            return outcome

    async def _hand_on(self, params: SignalDeliverParams) -> Entry | None:
        """Have the server that holds the thread accept a signal; None: it is to be accepted here.

        The ledger says whether it was accepted, also where no answer came.
        """
        if isinstance(params.target, ThreadSignalTarget):
            # Lists may not have it yet.
            thread_id = params.target.thread_id
        else:
            thread_id = (await self._recipients.find(params.target)).thread_id
        holder = await self._delivery.holder_elsewhere(thread_id)
        if holder is None:
            return None
        await self._ports.peers.call(thread_id, holder, "signal/deliver", params)
        entry = await self._find((params.signal.source, params.signal.id))
        if entry is not None:
            await self._take_foreign_changes(entry.thread_id)
        return entry

    def follow_up(self, outcome: Outcome) -> None:
        """Send receipts, let a woken turn run, and have the thread loaded if it must be."""
        self._delivery.run_effects(outcome.effects)
        if outcome.must_load:
            self._schedule.add(outcome.entry.thread_id)

    async def _accept(self, params: SignalDeliverParams, recipient: Recipient) -> Outcome:
        """Write a new signal down; the caller holds the lock of its thread."""
        await self._require_room(recipient.thread_id)
        now_ms = self._ports.clock.now_ms()
        wakes_before = await anyio.to_thread.run_sync(
            self._ledger.turns_woken_since,
            recipient.thread_id,
            params.signal.source,
            now_ms - WAKE_WINDOW_MS,
            now_ms,
        )
        item_id = self._ports.clock.new_id()
        entry = new_entry(
            params,
            recipient,
            item_id,
            now_ms,
            wakes_before,
            thread_has_tool=self._has_tool(recipient.thread_id, params.payload_tool),
        )
        outcome = Outcome(entry)
        await self._entries.write([entry], outcome.effects)
        return outcome

    def _has_tool(self, thread_id: str, name: str | None) -> bool:
        """Whether the model of a loaded thread can call a tool of this name now."""
        session = self._ports.sessions.find(thread_id)
        if name is None or session is None:
            return False
        return any(tool.raw.tool == name for tool in session.servers.live().tools().tools)

    async def _require_room(self, thread_id: str) -> None:
        if self._entries.open.unseen(thread_id) >= MAX_WAITING_SIGNALS:
            effects = Effects()
            await self._delivery.follow_log(thread_id, effects)
            self._delivery.run_effects(effects)
            if self._entries.open.unseen(thread_id) >= MAX_WAITING_SIGNALS:
                raise TooManyWaiting

    async def is_held_elsewhere(self, thread_id: str) -> bool:
        """Whether another server holds a thread."""
        return await self._delivery.holder_elsewhere(thread_id) is not None

    def unseen(self) -> list[int]:
        """Count the unseen signals of each thread that has open ones."""
        return [self._entries.open.unseen(thread_id) for thread_id in self._entries.open.threads()]

    async def _find(self, key: tuple[str, str]) -> Entry | None:
        # In the ledger, and not in memory: another server may move it.
        return await anyio.to_thread.run_sync(self._ledger.find, *key)

    async def read(self, source: str, signal_id: str) -> Entry:
        """Return a signal's entry.

        Raises:
            SignalUnknown
        """
        await self._reconciled.wait()
        entry = await self._find((source, signal_id))
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
        return await anyio.to_thread.run_sync(self._ledger.page, thread_id, stage, cursor, limit)

    async def recall(self, source: str, signal_id: str, *, of_peer: bool = False) -> Outcome:
        """Take a signal back that no model has seen; a second time it changes nothing.

        The server that holds the thread takes it back, if the request is not `of_peer` already.

        Raises:
            SignalUnknown, NotRecallable
            RpcError: the server that holds the thread refuses.
            ThreadBusy: another process writes the thread.
            OSError: the disk refused.
        """
        entry = await self.read(source, signal_id)
        holder = None if of_peer else await self._delivery.holder_elsewhere(entry.thread_id)
        if holder is not None:
            params = SignalRecallParams(source=source, id=signal_id)
            peers, thread_id = self._ports.peers, entry.thread_id
            if await peers.call(thread_id, holder, "signal/recall", params) is not None:
                await self._take_foreign_changes(entry.thread_id)
                return Outcome(await self.read(source, signal_id))
        outcome = Outcome(entry)
        async with self._lock(entry.key), self._lock(entry.thread_id):
            await self._delivery.follow_log(entry.thread_id, outcome.effects)
            entry = await self.read(source, signal_id)
            match entry.stage:
                case "recalled":
                    outcome.entry = entry
                    return outcome
                case "inHistory":
                    await self._withdraw(entry)
                case "accepted":
                    pass
                case _:
                    raise NotRecallable(entry.stage)
            outcome.entry = await self._entries.recall(entry, outcome.effects)
            return outcome

    async def _withdraw(self, entry: Entry) -> None:
        session = self._ports.sessions.find(entry.thread_id)
        if session is None or session.slot.closed:
            at_ms = self._ports.clock.now_ms()
            record = SignalRecalled(at_ms=at_ms, source=entry.source, id=entry.id)
            await self._ports.sessions.change(entry.thread_id, lambda _: [record])
        elif not await session.inbox.withdraw(entry.source, entry.id):
            raise NotRecallable(entry.stage)

    # Logs of loaded threads.

    def log_grew(self, state: ThreadState) -> None:
        """Schedule the thread of a log that has more records, if it has open entries."""
        if self._entries.open.has(state.id):
            self._schedule.add(state.id)

    # The work.

    async def run(self) -> None:
        """Deliver what waits and keep receipts true, until cancelled."""
        async with anyio.create_task_group() as tasks:
            await self._reconcile()
            self._reconciled.set()
            tasks.start_soon(self._forget_old)
            tasks.start_soon(self._follow_other_servers)
            while True:
                for thread_id in await self._schedule.due():
                    tasks.start_soon(self._work_on, thread_id)

    async def _work_on(self, thread_id: str) -> None:
        effects, lock = Effects(), self._lock(thread_id)
        async with lock:
            progress = await self._delivery.advance(thread_id, effects)
        self._delivery.run_effects(effects)
        if progress is Progress.MUST_LOAD:
            await self._delivery.load_and_advance(thread_id, lock)

    async def _reconcile(self) -> None:
        """Bring the entries of a process that died up to what the logs say."""
        async with anyio.create_task_group() as tasks:
            for thread_id in self._entries.open.threads():
                tasks.start_soon(self._delivery.reconcile, thread_id)

    # Other servers of the home.

    async def _follow_other_servers(self) -> None:
        """Take in what other servers write to the ledger, and threads that they no longer hold."""
        while True:
            began_s = anyio.current_time()
            try:
                await self._look_at_ledger()
                for thread_id in list(self._delivery.held_elsewhere):
                    if await self._delivery.holder_elsewhere(thread_id) is None:
                        await self._take_over(thread_id)
            except OSError as exc:
                logger.info("what other servers wrote is read later: %s", exc)
            except Exception:
                logger.exception("what other servers wrote is read later")
            spent_s = anyio.current_time() - began_s
            await anyio.sleep(pause_after(spent_s))

    async def _look_at_ledger(self) -> None:
        version = await anyio.to_thread.run_sync(self._ledger.version)
        if version == self._version:
            return
        for thread_id in await self._entries.foreign_changes():
            await self._take_foreign_changes(thread_id)
        # Only now: what failed is looked at again.
        self._version = version

    async def _take_foreign_changes(self, thread_id: str) -> None:
        effects = Effects()
        async with self._lock(thread_id):
            await self._entries.take_foreign_changes(thread_id, effects)
        self._delivery.run_effects(effects)
        self._schedule.add(thread_id)

    async def _take_over(self, thread_id: str) -> None:
        """Bring the entries of a thread that no server holds any more up to its log, and go on."""
        self._delivery.held_elsewhere.discard(thread_id)
        await self._take_foreign_changes(thread_id)
        async with self._lock(thread_id):
            await self._delivery.reconcile(thread_id)

    async def _forget_old(self) -> None:
        while True:
            now_ms = self._ports.clock.now_ms()
            try:
                removed = await anyio.to_thread.run_sync(self._ledger.forget_old, now_ms)
                logger.debug("forgot %d signals that are long over", removed)
            except OSError:
                logger.exception("the ledger of signals cannot be tidied")
            await anyio.sleep(self._forget_every_s)

    def _lock(self, name: object) -> anyio.Lock:
        return self._locks.setdefault(name, anyio.Lock())
