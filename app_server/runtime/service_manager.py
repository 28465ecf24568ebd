"""Notifies systemd of how far the server is, and that its event loop goes on.

Source: sd_notify(3), systemd.service(5) (`Type=notify`, `WatchdogSec=`).
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import anyio

SOCKET_VARIABLE = "NOTIFY_SOCKET"
WATCHDOG_VARIABLE = "WATCHDOG_USEC"
WATCHDOG_PID_VARIABLE = "WATCHDOG_PID"


@dataclass(frozen=True, slots=True)
class ServiceManager:
    """Service manager that has started the server, and gets notifications of its state."""

    address: str
    """Of its datagram socket; `@` stands for the NUL of an abstract one."""
    watchdog_s: float | None = None
    """Seconds without a watchdog notification before it kills the server; None: no limit."""

    @classmethod
    def take(cls, environ: MutableMapping[str, str]) -> "ServiceManager | None":
        """Take the manager's variables from the environment, so that children lack them.

        None where there is none, or none that makes sense.
        """
        address = environ.pop(SOCKET_VARIABLE, "")
        watchdog, pid = (
            environ.pop(name, "") for name in (WATCHDOG_VARIABLE, WATCHDOG_PID_VARIABLE)
        )
        if address[:1] not in ("/", "@"):
            return None
        is_for_us = pid in ("", str(os.getpid()))
        wanted = int(watchdog) / 1e6 if watchdog.isdecimal() and is_for_us else 0.0
        return cls(address, wanted or None)

    def notify(self, *states: str) -> None:
        """Send states, such as `READY=1`, without waiting."""
        address = f"\0{self.address[1:]}" if self.address.startswith("@") else self.address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto("\n".join(states).encode(), address)

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Give signs of life while the context lasts, twice as often as they are wanted."""
        # No task group: it would put what is raised in the context into an exception group.
        live = asyncio.create_task(self._live())
        try:
            yield
        finally:
            live.cancel()

    async def _live(self) -> None:
        if self.watchdog_s is None:
            return
        every_s = self.watchdog_s / 2
        while True:
            self.notify("WATCHDOG=1")
            await anyio.sleep(every_s)
