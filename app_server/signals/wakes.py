"""Wakes: signals that the server itself sends to threads, at a time or with an event.

A wake is on disk before it is acknowledged. What has fired is on disk with its text before its
signal is delivered, under an id that is made of the wake's, so nothing enters a thread twice; who
dies in between leaves a wake that the next look of any server goes on with. No timer is kept in
memory but the one for the next look.
Source: docs/wakes.md.
"""

import logging
import socket
import uuid
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import anyio
import anyio.abc
import anyio.to_thread
from pydantic_core import to_json

from app_server.observability.log_context import start_apart
from app_server.runtime.clock import Clock
from app_server.runtime.cut_text import cut_text
from app_server.signals.notifications import SignalPorts
from app_server.signals.recipients import NoRecipient, Recipients
from app_server.signals.service import (
    MAX_WAKES,
    WAKE_WINDOW_MS,
    SignalConflict,
    Signals,
    TooManyWaiting,
)
from app_server.signals.shown_wakes import WakeEvents, signal_id, source_of
from app_server.signals.watched_files import WatchedFiles, look_at, news_of
from app_server.threads.ledger import Entry, SignalLedger
from app_server.threads.operations import made_id
from app_server.threads.wakes import (
    EPHEMERAL,
    SOURCE,
    Look,
    StoredWake,
    TooManyWakes,
    WakePage,
    WakeStore,
)
from app_server.turns.commands import ThreadCommand
from app_server.turns.server_context import WakeRefused
from protocol.jsonrpc.errors import RpcError
from protocol.signals.delivery import (
    Signal,
    SignalDeliverParams,
    SignalReceipt,
    ThreadSignalTarget,
    WakeMode,
    WakeState,
)
from protocol.signals.wakes import (
    FileWakeSource,
    ProcessWakeSource,
    TimerWakeSource,
    WakeSource,
)

logger = logging.getLogger(__name__)

SENDER = "app-server"

LOOK_S = 5.0
"""Between two looks at most: another server may have set a wake, or somebody the clock."""
MAX_DUE = 256
"""Wakes that one look takes up."""
SIDE_BY_SIDE = 16
"""Of them at a time."""
LATE_MS = 10_000
"""After this a timer of a thread that another server holds is fired here."""
MIN_RETRY_MS, MAX_RETRY_MS = 1_000, 60_000
"""Until the next try of what cannot be delivered now; as long as it has waited already."""
FORGET_EVERY_S = 3600.0
SWEPT_AT_A_TIME = 256
"""Threads with open wakes that are looked for between two looks, after a start."""
EPHEMERAL_MS = 24 * 3600 * 1000
"""For which wakes of another server's ephemeral threads are left to that server."""
UNREADABLE = "sourceUnreadable"
"""Error code of a wake whose row is damaged."""
MAX_LINE_BYTES = 200
"""Of a command line in the text about its end."""
TAIL_BYTES = 1900
"""Of the end of its output there."""

SignalType = Literal["TimerFired", "ProcessExited", "ProcessLost", "FileChanged"]


class NoProcess(Exception):
    """The thread has no such command running behind its turns."""


class WakeUnknown(Exception):
    """The thread has no such wake."""


class WakeOver(Exception):
    """The wake is over, and cannot be cancelled any more."""

    def __init__(self, state: WakeState) -> None:
        self.state = state


@dataclass(frozen=True, slots=True)
class _Places:
    """Places of wakes that are looked after here; see `StoredWake.place`."""

    machine: str
    ephemeral: str

    def is_of_another_server(self, wake: StoredWake, now_ms: int) -> bool:
        """Whether the thread of a wake is an ephemeral one, which another server may still have."""
        if not wake.place.startswith(EPHEMERAL) or wake.place == self.ephemeral:
            return False
        return now_ms < max(wake.changed_at_ms, wake.at_ms or 0) + EPHEMERAL_MS

    def leave(self, wake: StoredWake, now_ms: int) -> bool:
        """Whether a wake that waits for a process or a file is left to others."""
        if wake.place.startswith(EPHEMERAL):
            return self.is_of_another_server(wake, now_ms)
        return wake.place not in ("", self.machine)


class Wakes:
    """The wakes of all threads."""

    def __init__(
        self,
        ledger: SignalLedger,
        signals: Signals,
        ports: SignalPorts,
        tasks: anyio.abc.TaskGroup,
    ) -> None:
        """Deliver with `signals`; `run` does the work, and `tasks` owns what it waits for."""
        self._ledger = ledger
        self._store: WakeStore = ledger.wakes
        self._signals = signals
        self._ports = ports
        self._recipients = Recipients(ports.store, ports.sessions)
        self._tasks = tasks
        self._changed = anyio.Event()
        self._events = WakeEvents(ledger, ports)
        self._files = WatchedFiles(tasks, self._changed)
        self._here = _Places(socket.gethostname(), f"{EPHEMERAL}{uuid.uuid4()}")
        self._followed = set[str]()
        """Ids of wakes whose processes are of this server."""
        self._settled = set[str]()
        """Ids of wakes of which a signal has come further."""
        self._last_ms: int | None = None
        self._places = anyio.CapacityLimiter(SIDE_BY_SIDE)
        ports.notifier.followers.append(self._receipt_changed)

    # What clients ask.

    async def set(
        self, thread_id: str, source: WakeSource, note: str = "", mode: WakeMode = "wake"
    ) -> StoredWake:
        """Arm a wake; when this returns, it is on disk.

        The caller has checked the bounds of the source.

        Raises:
            NoRecipient: the thread is unknown or archived.
            NoProcess, TooManyWakes
            OSError: nothing is armed; of a file also that it cannot be seen or watched.
        """
        await self._recipients.find(ThreadSignalTarget(thread_id=thread_id))
        session = self._ports.sessions.find(thread_id)
        is_ephemeral = session is not None and session.log.ephemeral
        now_ms = self._ports.clock.now_ms()
        wake = StoredWake(
            id=made_id(self._ports.clock),
            thread_id=thread_id,
            kind=source.type,
            source=to_json(source.model_dump(mode="json")).decode(),
            note=note,
            mode=mode,
            state="armed",
            set_at_ms=now_ms,
            changed_at_ms=now_ms,
            place=self._here.ephemeral if is_ephemeral else "",
        )
        command: ThreadCommand | None = None
        match source:
            case TimerWakeSource():
                every_ms = None if source.every_secs is None else source.every_secs * 1000
                at_ms = now_ms + (every_ms or 0) if source.at_ms is None else source.at_ms
                wake = replace(wake, at_ms=at_ms, every_ms=every_ms, look_at_ms=at_ms)
            case ProcessWakeSource():
                command = None if session is None else session.commands.find(source.process_id)
                if command is None:
                    raise NoProcess
                line = cut_text(command.line, MAX_LINE_BYTES)
                wake = replace(wake, seen=line)
                # Before others see it: what nobody follows is lost.
                self._followed.add(wake.id)
            case FileWakeSource():
                path = Path(source.path)
                await self._files.watch(wake.id, path)
                seen = await anyio.to_thread.run_sync(look_at, path)
                wake = replace(wake, place=wake.place or self._here.machine, seen=seen)
        try:
            await anyio.to_thread.run_sync(self._store.add, wake)
        except BaseException:
            self._files.end(wake.id)
            self._followed.discard(wake.id)
            raise
        if command is not None:
            start_apart(self._tasks, self._follow, wake, command)
        self._events.tell(wake)
        self._changed.set()
        return wake

    async def find(self, wake_id: str | None) -> StoredWake | None:
        """Return a wake of any thread and state; None: there is none, or no id."""
        return (
            None if wake_id is None else await anyio.to_thread.run_sync(self._store.find, wake_id)
        )

    async def list_page(
        self, thread_id: str | None, state: WakeState | None, cursor: str | None, limit: int
    ) -> WakePage:
        """Return one page of wakes, newest first.

        Raises:
            InvalidCursor
            OSError
        """
        return await anyio.to_thread.run_sync(self._store.page, thread_id, state, cursor, limit)

    async def cancel(self, thread_id: str, wake_id: str) -> StoredWake:
        """Cancel a wake, a second time without effect.

        A signal of it that is under way is not recalled.

        Raises:
            WakeUnknown, WakeOver
            OSError: it was not cancelled.
        """
        while True:
            wake = await anyio.to_thread.run_sync(self._store.find, wake_id)
            if wake is None or wake.thread_id != thread_id:
                raise WakeUnknown
            if wake.state == "cancelled":
                return wake
            if wake.state not in ("armed", "fired"):
                raise WakeOver(wake.state)
            if (cancelled := await self._end(wake, "cancelled")) is not None:
                return cancelled

    async def end_all(self, thread_id: str, code: str, text: str) -> None:
        """End the open wakes of a thread that was deleted or archived, with the error that says so.

        Those on its processes are lost, as those have been ended with it; the others are cancelled.

        Raises:
            OSError: some may still be open; they end when their time comes.
        """
        while wakes := await anyio.to_thread.run_sync(self._store.open_of, [thread_id]):
            for wake in wakes:
                if await self._is_readable(wake):
                    if wake.kind == "process" and wake.state == "armed":
                        # Open until its thread is told, which the next round finds gone.
                        await self._lose(wake)
                    else:
                        await self._give_up(wake, code, text)
                self._files.end(wake.id)

    # The work.

    async def run(self) -> None:
        """Fire and deliver until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_forget_old, self._store, self._ports.clock)
            tasks.start_soon(self._sweep)
            while True:
                self._changed = self._files.changed = anyio.Event()
                pause_s = LOOK_S
                try:
                    pause_s = await self._look()
                except OSError as exc:
                    logger.info("wakes are looked at later: %s", exc)
                except Exception:
                    # Nobody is above this but the server, which goes on.
                    logger.exception("wakes are looked at later")
                with anyio.move_on_after(pause_s):
                    await self._changed.wait()

    async def _sweep(self) -> None:
        """End what threads have open that were deleted or archived as their server died."""
        after = ""
        while True:
            try:
                threads = await anyio.to_thread.run_sync(
                    self._store.threads_with_open, after, SWEPT_AT_A_TIME
                )
                for thread_id in threads:
                    try:
                        await self._end_if_gone(thread_id)
                    except OSError:
                        raise
                    except Exception:
                        # Nobody is above this but the server, which goes on.
                        logger.exception("wakes of thread %s are left as they are", thread_id)
                    after = thread_id
            except OSError as exc:
                logger.info("wakes of threads that are gone end later: %s", exc)
            else:
                if len(threads) < SWEPT_AT_A_TIME:
                    return
            await anyio.sleep(LOOK_S)

    async def _end_if_gone(self, thread_id: str) -> None:
        try:
            await self._recipients.find(ThreadSignalTarget(thread_id=thread_id))
        except NoRecipient as exc:
            found = await anyio.to_thread.run_sync(self._store.open_of, [thread_id])
            now_ms = self._ports.clock.now_ms()
            if not any(self._here.is_of_another_server(wake, now_ms) for wake in found):
                await self.end_all(thread_id, exc.code, str(exc))

    async def _look(self) -> float:
        """Take up what is due; return the seconds until the next look.

        Raises:
            OSError: the store cannot be read.
        """
        now_ms = self._ports.clock.now_ms()
        if self._last_ms is None or now_ms < self._last_ms:
            await anyio.to_thread.run_sync(self._store.clock_set_back, now_ms)
        self._last_ms = now_ms
        await self._events.tell_of_others()
        settled, self._settled = self._settled, set()
        for wake_id in settled:
            wake = await anyio.to_thread.run_sync(self._store.find, wake_id)
            if wake is not None and wake.text and await self._is_readable(wake):
                await self._deliver(wake)
        look = await anyio.to_thread.run_sync(self._store.look, now_ms, MAX_DUE)
        moved: list[bool] = []
        async with anyio.create_task_group() as tasks:
            for wake in look.due:
                tasks.start_soon(self._take_up, wake, moved)
        await self._look_at_waiting(look)
        if len(look.due) == MAX_DUE and any(moved):
            return 0.0
        if look.next_ms is None:
            return LOOK_S
        return min(max((look.next_ms - self._ports.clock.now_ms()) / 1000, 0.0), LOOK_S)

    async def _take_up(self, wake: StoredWake, moved: list[bool]) -> None:
        async with self._places:
            try:
                moved.append(await self._advance(wake))
            except OSError as exc:
                logger.info("wake %s waits: %s", wake.id, exc)
            except Exception:
                logger.exception("wake %s waits", wake.id)

    async def _advance(self, wake: StoredWake) -> bool:
        """Fire a timer whose time has come, or deliver what has fired; False: another server does.

        Raises:
            OSError: the store or the thread cannot be had now.
        """
        if not await self._is_readable(wake):
            return True
        now_ms = self._ports.clock.now_ms()
        if self._here.is_of_another_server(wake, now_ms):
            if wake.look_at_ms is not None and now_ms - wake.look_at_ms >= LATE_MS:
                # What nobody takes up makes no room for others that are due.
                await self._postpone(wake)
            return False
        if wake.state == "armed":
            assert wake.at_ms is not None
            # Whoever holds the thread looks too, and its clients are there.
            is_late = now_ms - wake.at_ms >= LATE_MS
            if not is_late and await self._signals.is_held_elsewhere(wake.thread_id):
                return False
            text = f"The timer was set for {_shown(wake.at_ms)}; it is {_shown(now_ms)}."
            fired = await self._fire(wake, text)
            if fired is None:
                return False
            wake = fired
        await self._deliver(wake)
        return True

    async def _look_at_waiting(self, look: Look) -> None:
        """Look after wakes that wait for a process or a file.

        Raises:
            OSError: the store cannot be read or written.
        """
        now_ms = self._ports.clock.now_ms()
        self._files.keep({wake.id for wake in look.waiting if wake.kind == "file"})
        for wake in look.waiting:
            if self._here.leave(wake, now_ms) or not await self._is_readable(wake):
                continue
            if wake.kind == "file":
                await self._look_at_file(wake)
            elif wake.id not in self._followed and not await self._signals.is_held_elsewhere(
                wake.thread_id
            ):
                lost = await self._lose(wake)
                if lost is not None:
                    await self._deliver(lost)

    async def _is_readable(self, wake: StoredWake) -> bool:
        """Whether the source of a wake can be read; a wake whose cannot is cancelled.

        Raises:
            OSError: the store cannot be written.
        """
        try:
            source_of(wake)
        except ValueError:
            logger.error("wake %s is damaged, and is cancelled", wake.id)
            await self._give_up(wake, UNREADABLE, "its source cannot be read")
            return False
        return True

    async def _look_at_file(self, wake: StoredWake) -> None:
        source = source_of(wake)
        assert isinstance(source, FileWakeSource)
        path = Path(source.path)
        try:
            if not self._files.is_watched(wake.id):
                await self._files.watch(wake.id, path)
            if wake.id not in self._files.touched:
                return
            self._files.touched.discard(wake.id)
            seen, change = await news_of(wake, path)
        except OSError as exc:
            logger.info("the file of wake %s is looked at later: %s", wake.id, exc)
            self._files.end(wake.id)
            return
        if change is None:
            return
        now = replace(wake, seen=seen)
        if source.change not in (change, "any"):
            await anyio.to_thread.run_sync(self._store.move, wake, now)
            return
        fired = await self._fire(now, f"{source.path} was {change}.")
        if fired is not None:
            await self._deliver(fired)

    async def _follow(self, wake: StoredWake, command: ThreadCommand) -> None:
        """Wait for the end of a process of this server, and fire or lose its wake."""
        await command.completed.wait()
        while True:
            try:
                if command.is_cut_off:
                    # Its thread is being put away: a signal would load it again. A look tells it.
                    await self._lose(wake)
                    self._changed.set()
                elif (fired := await self._fire(wake, _end_of(command))) is not None:
                    await self._deliver(fired)
                break
            except OSError as exc:
                # How it ended is known here alone.
                logger.warning("the end of a process cannot be written to its wake: %s", exc)
                await anyio.sleep(MIN_RETRY_MS / 1000)
        self._followed.discard(wake.id)

    async def _lose(self, wake: StoredWake) -> StoredWake | None:
        """Write that a process is gone whose end nobody has seen; None: it is written already.

        Raises:
            OSError: the store cannot be written.
        """
        source = source_of(wake)
        assert isinstance(source, ProcessWakeSource)
        text = (
            f"Process {source.process_id} ({wake.seen}) is gone: its server, or its thread, "
            "was put away while it ran. Nobody knows how far it came."
        )
        return await self._fire(wake, text, "lost")

    async def _fire(
        self, wake: StoredWake, text: str, state: Literal["fired", "lost"] = "fired"
    ) -> StoredWake | None:
        """Write that an event has come, with the text about it; None: it is written already.

        Raises:
            OSError: nothing was written.
        """
        now_ms = self._ports.clock.now_ms()
        fired = replace(
            wake,
            state=state,
            changed_at_ms=now_ms,
            fires=wake.fires + 1,
            look_at_ms=now_ms + MIN_RETRY_MS,
            text="\n".join(part for part in (wake.note, text) if part),
        )
        if not await anyio.to_thread.run_sync(self._store.move, wake, fired):
            return None
        self._events.tell(fired, wake)
        return fired

    async def _deliver(self, wake: StoredWake) -> None:
        """Deliver the signal of a wake that has fired, and settle it when its thread has it.

        Raises:
            OSError: the store cannot be written.
        """
        try:
            now_ms = self._ports.clock.now_ms()
            if wake.mode == "wake" and await _is_limited(self._ledger, wake.thread_id, now_ms):
                await self._postpone(wake)
                return
            outcome = await self._signals.deliver(_signal(wake))
        except NoRecipient as exc:
            await self._give_up(wake, exc.code, str(exc))
        except SignalConflict:
            text = f"another signal of {SOURCE} has the id {signal_id(wake)}"
            await self._give_up(wake, "signalConflict", text)
        except (TooManyWaiting, RpcError, OSError) as exc:
            logger.info("wake %s is delivered later: %s", wake.id, exc or type(exc).__name__)
            await self._postpone(wake)
        else:
            try:
                await self._note_outcome(wake, outcome.entry)
            finally:
                # Behind what clients are told of the wake.
                self._signals.follow_up(outcome)

    async def _note_outcome(self, wake: StoredWake, entry: Entry) -> None:
        match entry.stage:
            case "accepted":
                await self._postpone(wake)
            case "failed" | "recalled" | "expired":
                code = entry.error_code or entry.stage
                await self._give_up(wake, code, entry.error_message or "")
            case _:
                await self._settle(wake)

    async def _postpone(self, wake: StoredWake) -> None:
        now_ms = self._ports.clock.now_ms()
        delay_ms = min(max(now_ms - wake.changed_at_ms, MIN_RETRY_MS), MAX_RETRY_MS)
        later = replace(wake, look_at_ms=now_ms + delay_ms)
        await anyio.to_thread.run_sync(self._store.move, wake, later)

    async def _settle(self, wake: StoredWake) -> None:
        """Note that the thread has the signal, and arm a repeated timer again."""
        now_ms = self._ports.clock.now_ms()
        after = replace(wake, changed_at_ms=now_ms, look_at_ms=None, text="")
        if wake.state == "fired":
            at_ms = next_time(wake, now_ms)
            after = replace(
                after,
                state="delivered" if at_ms is None else "armed",
                at_ms=at_ms,
                look_at_ms=at_ms,
            )
        if not await anyio.to_thread.run_sync(self._store.move, wake, after):
            return
        self._events.tell(after, wake)

    async def _give_up(self, wake: StoredWake, code: str, text: str) -> None:
        """End a wake whose thread cannot be told of it; what was lost stays so."""
        state: WakeState = "lost" if wake.state == "lost" else "cancelled"
        await self._end(wake, state, code, text)

    async def _end(
        self, wake: StoredWake, state: WakeState, code: str | None = None, text: str | None = None
    ) -> StoredWake | None:
        """End a wake, and notify clients of a new state; None: it has been moved meanwhile."""
        ended = replace(
            wake,
            state=state,
            changed_at_ms=self._ports.clock.now_ms(),
            look_at_ms=None,
            text="",
            error_code=code,
            error_message=text,
        )
        if not await anyio.to_thread.run_sync(self._store.move, wake, ended):
            return None
        self._events.tell(ended, wake)
        return ended

    def _receipt_changed(self, receipt: SignalReceipt) -> None:
        if receipt.source == SOURCE and receipt.stage != "accepted":
            self._settled.add(receipt.signal_id.partition(":")[0])
            self._changed.set()


async def _is_limited(ledger: SignalLedger, thread_id: str, now_ms: int) -> bool:
    """Whether wakes have begun so many turns of a thread that the next one has to wait."""
    count = await anyio.to_thread.run_sync(
        ledger.turns_woken_since, thread_id, SOURCE, now_ms - WAKE_WINDOW_MS, now_ms
    )
    return count >= MAX_WAKES


async def _forget_old(store: WakeStore, clock: Clock) -> None:
    while True:
        try:
            removed = await anyio.to_thread.run_sync(store.forget_old, clock.now_ms())
            logger.debug("forgot %d wakes that are long over", removed)
        except OSError:
            logger.exception("wakes that are over cannot be removed")
        await anyio.sleep(FORGET_EVERY_S)


def next_time(wake: StoredWake, now_ms: int) -> int | None:
    """Return when a repeated timer fires next, Unix milliseconds; None: it is over.

    Times that have passed meanwhile are left out.
    """
    source = source_of(wake)
    if not isinstance(source, TimerWakeSource) or wake.every_ms is None or wake.at_ms is None:
        return None
    passed = max((now_ms - wake.at_ms) // wake.every_ms, 0)
    at_ms = wake.at_ms + (passed + 1) * wake.every_ms
    return None if source.until_ms is not None and at_ms > source.until_ms else at_ms


def _signal(wake: StoredWake) -> SignalDeliverParams:
    """Make the signal of a wake that has fired, each time the same."""
    types: dict[str, SignalType] = {
        "timer": "TimerFired",
        "process": "ProcessLost" if wake.state == "lost" else "ProcessExited",
        "file": "FileChanged",
    }
    name = signal_id(wake)
    assert name is not None
    signal = Signal(id=name, source=SOURCE, type=types[wake.kind], sender=SENDER, summary=wake.text)
    return SignalDeliverParams(
        signal=signal,
        target=ThreadSignalTarget(thread_id=wake.thread_id),
        mode="wake" if wake.mode == "wake" else "passive",
        on_busy="queue",
    )


def _end_of(command: ThreadCommand) -> str:
    """Describe how a process has ended: its exit status, its time and the end of its output."""
    item = command.item
    seconds = (item.duration_ms or 0) / 1000
    line = cut_text(command.line, MAX_LINE_BYTES)
    output = (item.aggregated_output or "").encode()
    tail = output[-TAIL_BYTES:].decode(errors="ignore")
    shown = f"The end of its output:\n{tail}" if tail else "It printed nothing."
    return (
        f"Process {command.session_id} ({line}) exited with code {item.exit_code} after "
        f"{seconds:.1f} seconds. {shown}"
    )


def _shown(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# What models ask.


class WakesOfModels:
    """Wakes that models set for their own threads; see TurnWakes."""

    def __init__(self, wakes: Wakes) -> None:
        self._wakes = wakes

    async def at_time(self, thread_id: str, at_ms: int, note: str) -> None:
        """Have a turn begin at a time; see TurnWakes.at_time."""
        await self._set(thread_id, TimerWakeSource(at_ms=at_ms), note)

    async def at_exit(self, thread_id: str, session_id: str, note: str) -> None:
        """Have a turn begin when a command ends; see TurnWakes.at_exit."""
        await self._set(thread_id, ProcessWakeSource(process_id=session_id), note)

    async def _set(self, thread_id: str, source: WakeSource, note: str) -> None:
        try:
            await self._wakes.set(thread_id, source, note)
        except (NoRecipient, TooManyWakes) as exc:
            raise WakeRefused(str(exc)) from exc
        except NoProcess as exc:
            raise WakeRefused("its session has ended") from exc
        except OSError as exc:
            raise WakeRefused("the wake cannot be stored") from exc
