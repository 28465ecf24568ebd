"""Signals, opened with the first call, or once there is a ledger: other servers make it too."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import anyio
import anyio.abc
import anyio.to_thread

from app_server.observability.log_context import start_apart
from app_server.runtime.loader import Lazy, LoadFailed, load
from app_server.signals.notifications import SignalPorts
from app_server.threads.ledger import SignalStore
from app_server.turns.server_context import WakeRefused

if TYPE_CHECKING:
    from app_server.signals.service import Signals
    from app_server.signals.wakes import Wakes, WakesOfModels


logger = logging.getLogger(__name__)

LOOK_S = 2.0
"""Between two looks for the ledger of a home that has none yet."""

RETRY_S = 60.0
"""After a ledger that cannot be opened."""


class LazySignals:
    """The signals of a home that may never have one."""

    def __init__(self, store: SignalStore, tasks: anyio.abc.TaskGroup, ports: SignalPorts) -> None:
        """`tasks` owns the work."""
        self._store = store
        self._tasks = tasks
        self._ports = ports
        self._ledger = Lazy("the ledger of signals", store.open)
        self._signals = Lazy("signals", self._begin)
        self._wakes = Lazy("wakes", self._begin_wakes)

    async def resume(self) -> None:
        """Go on with what was accepted before this start, or is by another server of the home.

        Raises:
            OSError, LoadFailed: as `get`.
        """
        if await self._store.exists():
            await self.wakes()
        else:
            start_apart(self._tasks, self._await_ledger)

    async def _await_ledger(self) -> None:
        while self._wakes.value is None:
            try:
                if await self._store.exists():
                    await self.wakes()
                    return
            except (OSError, LoadFailed) as exc:
                logger.warning("signals cannot be opened, and are tried again: %s", exc)
                await anyio.sleep(RETRY_S)
            await anyio.sleep(LOOK_S)

    async def get(self) -> "Signals":
        """Return the signals, opened.

        Raises:
            OSError: the ledger cannot be used.
            LoadFailed: what serves signals cannot be imported now.
        """
        return self._signals.value or await self._signals.get()

    async def wakes(self) -> "Wakes":
        """Return the wakes, with the signals opened.

        Raises:
            OSError, LoadFailed: as `get`.
        """
        return self._wakes.value or await self._wakes.get()

    async def end_wakes(self, thread_id: str, code: str, text: str) -> None:
        """End the wakes of a thread that was deleted or archived; see Wakes.end_all.

        What cannot be written now is only logged: such a wake ends when its time comes.
        """
        try:
            if await self._store.exists():
                await (await self.wakes()).end_all(thread_id, code, text)
        except (OSError, LoadFailed) as exc:
            logger.warning("wakes of thread %s end later: %s", thread_id, exc)

    async def _begin_wakes(self) -> "Wakes":
        signals, ledger = await self.get(), await self._ledger.get()
        wakes = (await load(_wakes))(ledger, signals, self._ports, self._tasks)
        start_apart(self._tasks, wakes.run)
        return wakes

    async def _begin(self) -> "Signals":
        service = await load(_service)
        signals = service(await self._ledger.get(), self._ports)
        await signals.load()
        start_apart(self._tasks, signals.run)
        return signals

    async def stages(self) -> Mapping[str, int]:
        """Count the signals of the ledger by stage; nothing is opened for it.

        Raises:
            OSError: the ledger cannot be read.
        """
        if self._ledger.value is None:
            return {}
        return await anyio.to_thread.run_sync(self._ledger.value.stages)

    def unseen(self) -> Sequence[int]:
        """Count, for each thread that has any, the signals that no model has seen."""
        return () if self._signals.value is None else self._signals.value.unseen()

    async def aclose(self) -> None:
        """Close the ledger, once nothing works on it any more."""
        await self._wakes.close()
        await self._signals.close()
        ledger = await self._ledger.close()
        if ledger is not None:
            await anyio.to_thread.run_sync(ledger.close)


class ModelWakes:
    """The wakes as turns see them (TurnWakes), loaded with the first one that is set."""

    def __init__(self, wakes: "Callable[[], Awaitable[Wakes]]") -> None:
        """`wakes` opens those of the server; see LazySignals.wakes."""
        self._wakes = wakes

    async def at_time(self, thread_id: str, at_ms: int, note: str) -> None:
        """Have a turn begin at a time; see TurnWakes."""
        await (await self._opened()).at_time(thread_id, at_ms, note)

    async def at_exit(self, thread_id: str, session_id: str, note: str) -> None:
        """Have a turn begin when a command ends; see TurnWakes."""
        await (await self._opened()).at_exit(thread_id, session_id, note)

    async def _opened(self) -> "WakesOfModels":
        try:
            return (await load(_of_models))(await self._wakes())
        except OSError as exc:
            raise WakeRefused("the wake cannot be stored") from exc
        except LoadFailed as exc:
            raise WakeRefused("what sets wakes cannot be loaded now") from exc


def _service() -> "type[Signals]":
    from app_server.signals.service import Signals

    return Signals


def _wakes() -> "type[Wakes]":
    from app_server.signals.wakes import Wakes

    return Wakes


def _of_models() -> "type[WakesOfModels]":
    from app_server.signals.wakes import WakesOfModels

    return WakesOfModels
