"""Signals, opened with the first call, or after a start when there is a ledger."""

import importlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.abc
import anyio.to_thread

from app_server.threads.state import ThreadState

if TYPE_CHECKING:
    from app_server.signals.ledger import Ledger
    from app_server.signals.service import Signals

logger = logging.getLogger(__name__)


class LateSignals:
    """The signals of a home that may never have one."""

    def __init__(self, home: Path, tasks: anyio.abc.TaskGroup, *ports: Any) -> None:
        """`ports` are those of `SignalPorts` behind the ledger; `tasks` owns the work."""
        self._path = home / "signals" / "ledger.sqlite3"
        self._tasks = tasks
        self._ports = ports
        self._opening = anyio.Lock()
        self._ledger: Ledger | None = None
        self._signals: Signals | None = None

    async def resume(self) -> None:
        """Go on with what was accepted before this start, if anything ever was."""
        try:
            if await anyio.Path(self._path).exists():
                await self.get()
        except OSError:
            # Whoever delivers a signal will be told.
            logger.exception("the ledger of signals cannot be used")

    async def get(self) -> "Signals":
        """Return the signals, opened.

        Raises:
            OSError: the ledger cannot be used.
        """
        async with self._opening:
            if self._signals is None:
                service = await _load("app_server.signals.service")
                if self._ledger is None:
                    ledger = await _load("app_server.signals.ledger")
                    self._ledger = await anyio.to_thread.run_sync(ledger.Ledger, self._path)
                signals: Signals = service.Signals(service.SignalPorts(self._ledger, *self._ports))
                await signals.load()
                self._tasks.start_soon(signals.run)
                self._signals = signals
            return self._signals

    def log_grew(self, state: ThreadState) -> None:
        """Hear that a thread's log has more lines; never waits."""
        if self._signals is not None:
            self._signals.log_grew(state)

    async def aclose(self) -> None:
        """Close the ledger, once nothing works on it any more."""
        if self._ledger is not None:
            await anyio.to_thread.run_sync(self._ledger.close)


async def _load(module: str) -> Any:
    return await anyio.to_thread.run_sync(importlib.import_module, module)
