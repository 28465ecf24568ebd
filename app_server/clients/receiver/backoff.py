"""Waiting longer after each failure, a little differently every time."""

import random
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import anyio

MIN_S = 1.0
MAX_S = 30.0

Sleep: TypeAlias = Callable[[float], Awaitable[None]]


class Backoff:
    """Delays from 1 to 30 s; the range doubles with each failure in a row."""

    def __init__(
        self, sleep: Sleep = anyio.sleep, chance: Callable[[], float] = random.random
    ) -> None:
        """`chance` gives numbers from 0 to below 1."""
        self._sleep = sleep
        self._chance = chance
        self._failures = 0

    def reset(self) -> None:
        """Begin anew: something went well."""
        self._failures = 0

    def next_delay_s(self) -> float:
        """Count a failure and return how long to wait: the upper half of the range, jittered."""
        ceiling = min(MAX_S, MIN_S * (1 << min(self._failures, 16)))
        self._failures += 1
        return max(MIN_S, ceiling * (1 + self._chance()) / 2)

    async def wait(self, *, at_most: bool = False) -> None:
        """Wait after a failure; `at_most` takes the longest delay at once."""
        if at_most:
            self._failures = 16
        await self._sleep(self.next_delay_s())
