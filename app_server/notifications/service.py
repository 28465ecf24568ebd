"""Notifications of one server: what happens goes into the outbox, and from there to receivers.

Events come from one place, the hub, whose observer this is. They wait in memory for a moment and
are put together; an entry's id follows from its event, so what a crash kept out of the outbox is
put at the next start, from the logs. No turn waits for any of this.
Source: docs/notifications.md, "Outbox".
"""

import logging
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import islice

import anyio
import anyio.to_thread

from app_server.notifications.delivery import RETRY_S, WRITE_RETRY_S, Delivery
from app_server.notifications.occurrences import (
    QUESTIONS,
    RESOLVED,
    Occurrence,
    ThreadFacts,
    body_of,
    inputs_of,
    of_budget,
    of_logged_turn,
    of_question,
    of_signal,
    of_turn_end,
    of_wake,
    resolved,
)
from app_server.notifications.ports import NotificationPorts
from app_server.notifications.settings import NotificationSettings, Target
from app_server.threads.failures import ThreadBusy, ThreadDamaged, ThreadNotFound, ThreadTooNew
from app_server.threads.log.state import ThreadState
from app_server.threads.outbox import (
    NotificationOutbox,
    OutboxEntry,
)
from app_server.threads.rows import ThreadQuery
from protocol.jsonrpc.envelope import RequestId
from protocol.model import WireModel
from protocol.signals.delivery import SignalUpdatedNotification
from protocol.signals.wakes import ThreadWakeChangedNotification
from protocol.threads.budget import ThreadBudgetUpdatedNotification
from protocol.turns.notifications import TurnCompletedNotification

logger = logging.getLogger(__name__)

GATHER_S = 0.2
"""Seconds for which events are gathered that are put together."""
MAX_UNWRITTEN = 1_000
"""Events that memory holds while the outbox cannot be written; what comes then is dropped."""
MAX_PUT = 256
"""Events that are put together."""
LOOK_S = 30.0
"""Seconds between looks at what other servers have left, and between signs of life."""
FORGET_S = 3_600.0
REPAIR_MS = 24 * 3600 * 1000
"""Milliseconds before a start from which on ends of turns are put afterwards."""
SLACK_MS = 1_000
"""Milliseconds by which clocks and writes of one moment may differ."""
UNREADABLE = (ThreadNotFound, ThreadDamaged, ThreadTooNew)
"""Threads of which nothing more is said than that their questions are over."""
MAX_REPAIRED = 1_000
"""Threads that are looked at for one run that ended without a word."""


class Notifications:
    """The outbox of this server, filled and emptied while it runs."""

    def __init__(
        self,
        outbox: NotificationOutbox,
        ports: NotificationPorts,
        settings: NotificationSettings,
        *,
        retry_s: Sequence[float] = RETRY_S,
        look_s: float = LOOK_S,
    ) -> None:
        """Repeat attempts after `retry_s`; look at other servers' entries every `look_s`."""
        self._outbox = outbox
        self._ports = ports
        self._look_s = look_s
        self.run_id = ports.clock.new_id()
        self._settings = settings
        self._wanted: frozenset[str] = frozenset()
        self._unwritten: deque[Occurrence] = deque()
        self._putting = anyio.Lock()
        self._dropped = 0
        self._questions: dict[str, ThreadFacts] = {}
        """Questions that are open, with the threads that they are about."""
        self._found: Mapping[str, int] | None = None
        """Runs that were there at the first look, with their last signs of life."""
        self._has_news = anyio.Event()
        self._delivery = Delivery(outbox, ports, self.run_id, retry_s=retry_s, look_s=look_s)
        self.take_settings(settings)

    def take_settings(self, settings: NotificationSettings) -> None:
        """Use other settings from now on."""
        self._settings = settings
        wanted = {event for target in settings.targets for event in target.events}
        self._wanted = frozenset(wanted if wanted.isdisjoint(QUESTIONS) else {*wanted, RESOLVED})
        self._delivery.take_targets(settings.targets)

    @property
    def unwritten(self) -> int:
        """Number of events that are not in the outbox yet."""
        return len(self._unwritten)

    # What the hub shows.

    def observe(self, event: WireModel) -> None:
        """Take an event of a thread; never waits."""
        with _contained():
            match event:
                case TurnCompletedNotification():
                    self._take_turn_end(event)
                case SignalUpdatedNotification():
                    thread = self._thread(event.receipt.thread_id)
                    self._take(of_signal(event, thread, self._ports.clock.now_ms()))
                case ThreadWakeChangedNotification():
                    thread = self._thread(event.thread_id)
                    self._take(of_wake(event, thread, self._ports.clock.now_ms()))
                case ThreadBudgetUpdatedNotification():
                    thread = self._thread(event.thread_id)
                    self._take(of_budget(event, thread, self._ports.clock.now_ms()))

    def _take_turn_end(self, event: TurnCompletedNotification) -> None:
        state = self._state_of(event.thread_id)
        if state is None:
            return
        occurrence = of_turn_end(event, state, self._ports.clock.now_ms())
        if occurrence is not None and self._wants_inputs:
            occurrence = replace(occurrence, inputs=inputs_of(state))
        self._take(occurrence)

    def asking(self, thread_id: str, request_id: RequestId, method: str, params: WireModel) -> None:
        """Take a question to clients; never waits."""
        question_id = self._question_id(request_id)
        with _contained():
            thread = self._thread(thread_id)
            occurrence = of_question(thread, question_id, params, self._ports.clock.now_ms())
            if occurrence is not None and occurrence.event in self._wanted:
                self._questions[question_id] = thread
                self._take(occurrence)

    def asked(self, thread_id: str, request_id: RequestId, method: str, *, answered: bool) -> None:
        """Take the end of a question; never waits."""
        question_id = self._question_id(request_id)
        thread = self._questions.pop(question_id, None)
        if thread is not None:
            outcome = "answered" if answered else "withdrawn"
            self._take(resolved(thread, question_id, outcome, self._ports.clock.now_ms()))

    def _question_id(self, request_id: RequestId) -> str:
        # Numbers of requests begin anew with each start.
        return f"{self.run_id}:{request_id}"

    @property
    def _wants_inputs(self) -> bool:
        return any(target.kind == "notify" for target in self._settings.targets)

    def _state_of(self, thread_id: str) -> ThreadState | None:
        session = self._ports.sessions.find(thread_id)
        return None if session is None else session.log.state

    def _thread(self, thread_id: str) -> ThreadFacts:
        state = self._state_of(thread_id)
        if state is None:
            return ThreadFacts(id=thread_id, name=None, cwd=None)
        return ThreadFacts.of(state)

    def _take(self, occurrence: Occurrence | None) -> None:
        if occurrence is None or (occurrence.event not in self._wanted):
            return
        if len(self._unwritten) >= MAX_UNWRITTEN:
            self._dropped += 1
            return
        self._unwritten.append(occurrence)
        self._has_news.set()

    # Into the outbox.

    async def run(self) -> None:
        """Put what happens and send what waits, until cancelled."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._put_events)
                tasks.start_soon(self._look_around)
                tasks.start_soon(self._delivery.run)
        finally:
            with anyio.CancelScope(shield=True):
                await self._leave()

    async def _leave(self) -> None:
        """Put the last events; what was tried and not finished is tried by the next server."""
        with suppress(OSError):
            await self._put()
            await self._delivery.settle()
            await anyio.to_thread.run_sync(self._outbox.end_run, self.run_id)

    async def _put_events(self) -> None:
        failures = 0
        while True:
            await self._has_news.wait()
            self._has_news = anyio.Event()
            await anyio.sleep(GATHER_S)
            try:
                await self._put()
                failures = 0
            except OSError as exc:
                delay_s = WRITE_RETRY_S[min(failures, len(WRITE_RETRY_S) - 1)]
                if failures == 0:
                    logger.error("notifications cannot be written, and wait in memory: %s", exc)
                failures += 1
                await anyio.sleep(delay_s)
                self._has_news.set()

    async def _put(self) -> None:
        """Put the events that wait, the oldest first, with a sign of life.

        Raises:
            OSError: the outbox cannot be written; they go on waiting.
        """
        async with self._putting:
            while True:
                some = list(islice(self._unwritten, MAX_PUT))
                entries = [entry for one in some for entry in await self._entries_of(one)]
                rest = next(islice(self._unwritten, len(some), None), None)
                at_ms = self._ports.clock.now_ms() if rest is None else rest.at_ms
                with anyio.CancelScope(shield=True):
                    put = partial(self._outbox.put, entries, self.run_id, at_ms)
                    dropped = self._dropped + await anyio.to_thread.run_sync(put)
                    self._dropped = 0
                    for _ in some:
                        self._unwritten.popleft()
                if dropped:
                    logger.error("%d notifications were dropped: too many wait", dropped)
                if entries:
                    self._delivery.look()
                if not self._unwritten:
                    return

    async def _entries_of(self, occurrence: Occurrence) -> Sequence[OutboxEntry]:
        """Return an entry for each receiver that is to have an event."""
        thread = occurrence.thread
        if thread.cwd is None:
            # It is not loaded.
            with suppress(Exception):
                row = await self._ports.store.lists.find(thread.id)
                thread = replace(thread, name=row.name, cwd=row.cwd)
                occurrence = replace(occurrence, thread=thread)
        return [
            self._entry(occurrence, target)
            for target in self._settings.targets
            if target.wants(occurrence.asks_for, thread.id, thread.name, thread.cwd)
        ]

    def _entry(self, occurrence: Occurrence, target: Target) -> OutboxEntry:
        return OutboxEntry(
            target=target.id,
            id=occurrence.id,
            label=target.label,
            thread_id=occurrence.thread.id,
            event=occurrence.event,
            subject=occurrence.subject,
            body=body_of(occurrence, target, self._settings.link),
            run=self.run_id,
            created_at_ms=occurrence.at_ms,
            is_open=occurrence.event in QUESTIONS,
        )

    # What others left.

    async def _look_around(self) -> None:
        """Say that this server lives, and put what servers that died could not; until cancelled."""
        forgot_s = float("-inf")
        while True:
            try:
                await self._put()
                await self._enable_again()
                await self._repair()
                if anyio.current_time() - forgot_s >= FORGET_S:
                    now_ms = self._ports.clock.now_ms()
                    await anyio.to_thread.run_sync(self._outbox.forget_old, now_ms)
                    forgot_s = anyio.current_time()
            except OSError as exc:
                logger.warning("the outbox of notifications is looked at later: %s", exc)
            self._delivery.look()
            await anyio.sleep(self._look_s)

    async def _enable_again(self) -> None:
        """Enable what the settings did not name for a while."""
        disabled = await anyio.to_thread.run_sync(self._outbox.disabled)
        for target_id in disabled.keys() - {target.id for target in self._settings.targets}:
            await anyio.to_thread.run_sync(self._outbox.enable, target_id)

    async def _repair(self) -> None:
        """Put what happened in runs that ended without a word, from the logs of their threads.

        Those are runs that give no sign of life, and those that gave none since this one began. The
        threads that other servers write are passed over.

        Raises:
            OSError: the outbox or the logs cannot be read.
        """
        now_ms = self._ports.clock.now_ms()
        runs = await anyio.to_thread.run_sync(self._outbox.runs)
        found = self._found = runs if self._found is None else self._found
        for run, at_ms in runs.items():
            is_silent = at_ms < now_ms - 3 * self._look_s * 1000
            if run == self.run_id or not (is_silent or found.get(run) == at_ms):
                continue
            is_done = await self._repair_turns(max(at_ms - SLACK_MS, now_ms - REPAIR_MS))
            is_done &= await self._withdraw_questions()
            # Until they are in the outbox the mark of the run says where to begin again.
            await self._put()
            if is_done or at_ms < now_ms - REPAIR_MS:
                await anyio.to_thread.run_sync(self._outbox.end_run, run)
                if not is_silent:
                    # It may live, and be killed before its next sign of life.
                    await anyio.to_thread.run_sync(self._outbox.put, [], run, at_ms)

    async def _repair_turns(self, since_ms: int) -> bool:
        """Put ends of turns since a time; False if another server writes some of the threads."""
        is_done, cursor, looked_at = True, None, 0
        while looked_at < MAX_REPAIRED:
            query = ThreadQuery(limit=100, cursor=cursor, sort_key="updated_at_ms")
            page = await self._ports.store.lists.page(query)
            for row in page.rows:
                if row.updated_at_ms < since_ms:
                    return is_done
                is_done &= await self._repair_thread(row.id, since_ms)
            # Memory has room for those of the next page.
            await self._put()
            looked_at += len(page.rows)
            cursor = page.next_cursor
            if cursor is None:
                return is_done
        logger.warning("of the turns that ended before the start some may have no notification")
        return is_done

    async def _repair_thread(self, thread_id: str, since_ms: int) -> bool:
        try:
            state = await self._state_of_free(thread_id)
        except UNREADABLE:
            return True
        if state is None:
            return False
        runs_here = self._ports.sessions.find(thread_id) is not None
        for turn in state.turns:
            ended_ms = turn.completed_at_ms or state.updated_at_ms
            if ended_ms < since_ms or (runs_here and turn.status == "inProgress"):
                continue
            self._take(of_logged_turn(state, turn, ended_ms))
        return True

    async def _withdraw_questions(self) -> bool:
        """Put the end of questions whose server died with them; False if some may be open still."""
        is_done = True
        for entry in await anyio.to_thread.run_sync(self._outbox.open_questions):
            if entry.run == self.run_id:
                continue
            try:
                state = await self._state_of_free(entry.thread_id)
            except UNREADABLE:
                thread = self._thread(entry.thread_id)
            else:
                if state is None:
                    is_done = False
                    continue
                thread = ThreadFacts.of(state)
            now_ms = self._ports.clock.now_ms()
            self._take(resolved(thread, entry.subject, "withdrawn", now_ms))
        return is_done

    async def _state_of_free(self, thread_id: str) -> ThreadState | None:
        """Return the state of a thread that is loaded here or by no server; None: another has it.

        Raises:
            ThreadNotFound, ThreadDamaged, ThreadTooNew
            OSError: its log cannot be read.
        """
        store = self._ports.store
        if (state := self._state_of(thread_id)) is not None:
            return state
        try:
            await store.require_free(thread_id)
            state = await store.read(thread_id)
            # Another server may have loaded it meanwhile.
            await store.require_free(thread_id)
        except ThreadBusy:
            return self._state_of(thread_id)
        return state


@contextmanager
def _contained() -> Iterator[None]:
    """Log a failure in a callback: whoever emits an event has nothing to do with it."""
    try:
        yield
    except Exception:
        logger.exception("an event has no notification")
