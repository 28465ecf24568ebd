"""Wakes as clients see them: in lists, and as events of what becomes of them.

An event is for the clients that follow the thread, which are those of the server that has it
loaded. Whatever another server has moved is found by looking, and told of as if it were done here.
Source: docs/wakes.md, "Several servers".
"""

import logging
from collections.abc import Sequence, Set
from dataclasses import dataclass

import anyio.to_thread
from pydantic import TypeAdapter

from app_server.signals.notifications import SignalPorts
from app_server.threads.ledger import SignalLedger
from app_server.threads.wakes import StoredWake
from protocol.signals.delivery import SignalError, WakeState
from protocol.signals.wakes import ThreadWakeChangedNotification, Wake, WakeSource

logger = logging.getLogger(__name__)

_SOURCES: TypeAdapter[WakeSource] = TypeAdapter(WakeSource)


def source_of(wake: StoredWake) -> WakeSource:
    """Return the source of a wake as the wire has it.

    Raises:
        ValueError: the row is damaged.
    """
    return _SOURCES.validate_json(wake.source)


def shown_wake(wake: StoredWake) -> Wake:
    """Return a wake as the wire has it."""
    return Wake(
        id=wake.id,
        thread_id=wake.thread_id,
        source=source_of(wake),
        note=wake.note,
        mode=wake.mode,
        state=wake.state,
        set_at_ms=wake.set_at_ms,
        changed_at_ms=wake.changed_at_ms,
        next_at_ms=wake.at_ms if wake.state == "armed" else None,
        signal_id=signal_id(wake),
        error=_error(wake),
    )


def shown_wakes(wakes: Sequence[StoredWake]) -> list[Wake]:
    """Return wakes as the wire has them, without those whose rows are damaged."""
    shown = []
    for wake in wakes:
        try:
            shown.append(shown_wake(wake))
        except ValueError:
            logger.warning("wake %s is damaged, and not listed", wake.id)
    return shown


def signal_id(wake: StoredWake) -> str | None:
    """Return the id of the last signal of a wake: of a repeated timer each time another one."""
    if wake.fires == 0:
        return None
    return wake.id if wake.every_ms is None else f"{wake.id}:{wake.fires}"


def _error(wake: StoredWake) -> SignalError | None:
    if wake.error_code is None:
        return None
    return SignalError(code=wake.error_code, message=wake.error_message or "")


_ORDER: Sequence[WakeState] = ("fired", "delivered", "armed", "cancelled", "lost")
"""In which the states of one fire follow; a wake is armed before the first, and after each."""


def _steps(wake: StoredWake) -> Sequence[WakeState]:
    """Return the states that a wake has gone through since it last fired."""
    if wake.state in ("cancelled", "lost") or wake.fires == 0:
        return [wake.state]
    return _ORDER[: _ORDER.index(wake.state) + 1]


@dataclass(frozen=True, slots=True)
class _LastEvent:
    """How far clients know a wake."""

    thread_id: str
    step: tuple[int, int]
    """Number of fires, and the place of the state in `_ORDER`."""
    is_open: bool


def _told_of(wake: StoredWake) -> _LastEvent:
    return _LastEvent(wake.thread_id, (wake.fires, _ORDER.index(wake.state)), wake.is_open)


class WakeEvents:
    """Sender of `thread/wake/changed`."""

    def __init__(self, ledger: SignalLedger, ports: SignalPorts) -> None:
        self._ledger = ledger
        self._ports = ports
        self._told: dict[str, _LastEvent] = {}
        """By ids of wakes: open ones of loaded threads, and what ended since the last look."""
        self._threads = set[str]()
        """Loaded at the last look."""
        self._version: object = None

    def tell(self, wake: StoredWake, before: StoredWake | None = None) -> None:
        """Send the steps of a wake that clients have not been told of; never waits.

        `before` is the wake as this server found it, whose clients know that much.
        """
        known = self._told.get(wake.id) or (None if before is None else _told_of(before))
        for state in _steps(wake):
            if known is None:
                is_new = state == wake.state
            else:
                is_new = (wake.fires, _ORDER.index(state)) > known.step
            if is_new:
                self._emit(wake, state)
        self._note(wake)

    def _note(self, wake: StoredWake) -> None:
        known, now = self._told.get(wake.id), _told_of(wake)
        if known is None or (now.step, not now.is_open) > (known.step, not known.is_open):
            self._told[wake.id] = now

    def _emit(self, wake: StoredWake, state: WakeState) -> None:
        event = ThreadWakeChangedNotification(
            thread_id=wake.thread_id,
            wake_id=wake.id,
            state=state,
            at_ms=wake.changed_at_ms,
            signal_id=signal_id(wake),
            error=_error(wake),
        )
        self._ports.notifier.emit(wake.thread_id, event)

    async def tell_of_others(self) -> None:
        """Send what other servers have done with the wakes of threads that are loaded here.

        What was there when a thread was loaded, its clients ask for. For one caller.

        Raises:
            OSError: the store cannot be read.
        """
        threads = set(self._ports.sessions.ids)
        # What ends while the store is read stays: a row that is read may be older.
        self._told = {
            wake_id: told
            for wake_id, told in self._told.items()
            if told.is_open and told.thread_id in threads
        }
        version = await anyio.to_thread.run_sync(self._ledger.version)
        asked = threads - self._threads if version == self._version else threads
        if asked:
            await self._read(asked)
        self._threads = threads
        # Only now: what failed is looked at again.
        self._version = version

    async def _read(self, threads: Set[str]) -> None:
        before = dict(self._told)
        found = await anyio.to_thread.run_sync(self._ledger.wakes.open_of, sorted(threads))
        for wake in found:
            if wake.thread_id in self._threads:
                self.tell(wake)
            else:
                self._note(wake)
        ended = before.keys() - {wake.id for wake in found}
        for wake_id in ended:
            if before[wake_id].thread_id not in threads:
                continue
            wake_now = await anyio.to_thread.run_sync(self._ledger.wakes.find, wake_id)
            if wake_now is not None:
                self.tell(wake_now)
