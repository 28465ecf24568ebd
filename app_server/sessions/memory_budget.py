"""One budget for what loaded threads keep in memory.

Events that could be sent again are forgotten first, those of the longest quiet threads before
others; then quiet threads are unloaded. What a turn or a subscriber needs stays, whatever it takes.
Source: docs/config.md, "Memory".
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import anyio
import anyio.lowlevel

from app_server.config.values import Config, ConfigView
from app_server.rpc.replay import ReplayBuffers, ReplayLimits
from app_server.sessions.registry import Sessions
from app_server.threads.log.state import ThreadState
from protocol.model import Json

MIB = 1024 * 1024
DEFAULT_BUDGET = 256 * MIB
CHECK_S = 5.0
LEAST_SHARE = 8
"""Streams may always have this part of the budget: one eighth."""


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """Memory budget of all loaded threads, and bounds of each one's replay buffer."""

    budget_bytes: int = DEFAULT_BUDGET
    stream: ReplayLimits = field(default_factory=ReplayLimits)


def read_memory_settings(config: Config) -> MemorySettings:
    """Read the keys that say how much may be kept.

    Raises:
        ConfigError: a value is not an integer within its bounds.
    """
    view, stream = config.view(), ReplayLimits()
    return MemorySettings(
        budget_bytes=_integer(view, "memory_budget_bytes", DEFAULT_BUDGET, MIB, 1 << 40),
        stream=ReplayLimits(
            # More than a client's queue takes could not be sent again at once.
            max_events=_integer(view, "thread_events_kept", stream.max_events, 256, 4096),
            max_bytes=_integer(
                view, "thread_events_kept_bytes", stream.max_bytes, 64 * 1024, 8 * MIB
            ),
        ),
    )


def _integer(view: ConfigView, key: str, default: int, least: int, most: int) -> int:
    value = view.integer(key)
    if value is None:
        return default
    if not least <= value <= most:
        raise view.error(f"{value} is not between {least} and {most}", key)
    return value


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


STEP = 500
"""Items that are looked at before others get their turn."""
VALUE_BYTES = 64
"""Estimated bytes of a JSON value besides its text."""
COPIES = 2
"""Copies of each text: history of the model, and items of clients."""


class HistorySizes:
    """Estimated bytes of the histories of threads; what was counted is remembered."""

    def __init__(self) -> None:
        self._counted: dict[str, tuple[int, int, int]] = {}
        """By thread: which list, how many of its items, their bytes."""

    async def measure(self, states: Iterable[ThreadState]) -> int:
        """Return the bytes of all given threads; the others are forgotten.

        Lists only grow; one that is replaced or cut is noticed by its identity and length.
        """
        before, self._counted = self._counted, {}
        for state in states:
            history = state.history
            identity, count, size = before.get(state.id, (0, 0, 0))
            if identity != id(history) or count > len(history):
                count, size = 0, 0
            while count < len(history):
                step = history[count : count + STEP]
                size += sum(map(size_of, step))
                count += len(step)
                await anyio.lowlevel.checkpoint()
            self._counted[state.id] = id(history), count, size
        return COPIES * sum(size for _, _, size in self._counted.values())


def size_of(value: Json) -> int:
    """Estimate the bytes of a JSON value."""
    total = 0
    left = [value]
    while left:
        part = left.pop()
        total += VALUE_BYTES
        if isinstance(part, str):
            total += len(part)
        elif isinstance(part, dict):
            left.extend(part.values())
        elif isinstance(part, list):
            left.extend(part)
    return total
