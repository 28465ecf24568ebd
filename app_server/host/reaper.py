"""Sees to it that children end when this process dies, also by kill -9.

A watchdog (app_server/host/watchdog.py) is given the process groups that live. It is started with
the first child, and again with the next child if it has died.
Source: docs/environments.md, "Children".
"""

import asyncio
import logging
import subprocess
from pathlib import Path

import anyio

from app_server.host.scripts import end_script, start_script

logger = logging.getLogger(__name__)

WATCHDOG = Path(__file__).with_name("watchdog.py")

CLOSE_S = 5.0
"""For the watchdog to end by itself, as it has nothing left to do by then; then it is killed."""


class Reaper:
    """Watchdog of this process, and the process groups that it ends."""

    def __init__(self) -> None:
        self.groups: set[int] = set()
        """Process groups that must not outlive this process."""
        self._watchdog: asyncio.subprocess.Process | None = None
        self._starting = anyio.Lock()

    @property
    def pid(self) -> int | None:
        """The watchdog's process id; None while there is none."""
        return self._watchdog.pid if self._watchdog is not None and self._is_connected else None

    async def ready(self) -> None:
        """Make sure that the watchdog runs; without one children are started all the same."""
        async with self._starting:
            if self._is_connected:
                return
            try:
                self._watchdog = await start_script(WATCHDOG, stdin=subprocess.PIPE)
            except OSError as exc:
                logger.warning("children may outlive a crash: no watchdog: %s", exc)
                return
            for group in self.groups:
                self._send("+", group)

    def add(self, group: int) -> None:
        """Take a new group into care; never waits."""
        self.groups.add(group)
        self._send("+", group)

    def discard(self, group: int) -> None:
        """Forget a group that has ended, before its id is given to another."""
        if group in self.groups:
            self.groups.remove(group)
            self._send("-", group)

    async def aclose(self) -> None:
        """Close the watchdog; it ends the groups that it still knows."""
        watchdog, self._watchdog = self._watchdog, None
        if watchdog is None:
            return
        assert watchdog.stdin is not None
        watchdog.stdin.close()
        await end_script(watchdog, CLOSE_S)

    @property
    def _is_connected(self) -> bool:
        watchdog = self._watchdog
        if watchdog is None or watchdog.stdin is None:
            return False
        return watchdog.returncode is None and not watchdog.stdin.is_closing()

    def _send(self, sign: str, group: int) -> None:
        if self._is_connected:
            assert self._watchdog is not None
            assert self._watchdog.stdin is not None
            self._watchdog.stdin.write(f"{sign}{group}\n".encode())
