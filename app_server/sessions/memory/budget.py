"""One budget for what loaded threads keep in memory.

Events that could be sent again are forgotten first, those of the longest quiet threads before
others; then quiet threads are unloaded. What a turn or a subscriber needs stays, whatever it takes.
Source: docs/config.md, "Memory".
"""

from dataclasses import dataclass

import anyio

from app_server.rpc.hub.replay_buffers import ReplayBuffers
from app_server.sessions.registry import Sessions
from app_server.threads.log.sizes import HistorySizes

CHECK_S = 5.0
LEAST_SHARE = 8
"""Streams may always have this part of the budget: one eighth."""


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Estimated bytes."""

    budget: int
    streams: int
    histories: int

    @property
    def is_too_much(self) -> bool:
        """Whether the budget does not suffice."""
        return self.streams + self.histories > self.budget


class MemoryBudget:
    """Keeps threads within their budget, as far as that is possible."""

    def __init__(self, budget_bytes: int, streams: ReplayBuffers, sessions: Sessions) -> None:
        self.sessions = sessions
        self._budget = budget_bytes
        self._streams = streams
        self._sizes = HistorySizes()
        self._measuring = anyio.Lock()
        streams.share = budget_bytes

    async def run(self) -> None:
        """Keep within the budget until cancelled."""
        while True:
            await anyio.sleep(CHECK_S)
            await self.keep_within()

    async def measure(self) -> MemoryUse:
        """Look how much is taken."""
        async with self._measuring:
            states = [session.log.state for session in self.sessions]
            histories = await self._sizes.measure(states)
        return MemoryUse(self._budget, self._streams.total_bytes, histories)

    async def keep_within(self) -> None:
        """Give the streams what histories leave; unload quiet threads if that is not enough."""
        use = await self.measure()
        self._streams.share = max(self._budget - use.histories, self._budget // LEAST_SHARE)
        if self._streams.total_bytes > self._streams.share:
            self._streams.shed()
        for thread_id in self.sessions.unloading.quiet:
            if not (await self.measure()).is_too_much:
                return
            await self.sessions.unloading.unload_quiet(thread_id)
