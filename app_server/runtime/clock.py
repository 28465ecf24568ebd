"""Time and ids, in one place so that tests can hold them still."""

import time
from typing import Protocol

import uuid_utils


class Clock(Protocol):
    """Source of times and ids."""

    def now_ms(self) -> int:
        """Return Unix milliseconds."""

    def monotonic_ms(self) -> int:
        """Return milliseconds since some moment, however the machine's clock is set meanwhile."""

    def new_id(self) -> str:
        """Return a UUID, version 7, later ones sorting behind earlier ones."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Return Unix milliseconds."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Return milliseconds since some moment of this machine."""
        return time.monotonic_ns() // 1_000_000

    def new_id(self) -> str:
        """Return a UUID, version 7."""
        return str(uuid_utils.uuid7())


STARTED_AT = int(time.time())
"""Unix seconds of the start of this process."""
