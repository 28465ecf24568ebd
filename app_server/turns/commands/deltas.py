"""What clients are notified of a command's output while it runs: merged, within a rate.

Source: docs/tools.md, "Commands".
"""

import asyncio
from collections.abc import Callable

from app_server.host.commands.output import KeptOutput, without_split_end

MAX_DELTA_BYTES = 8 * 1024
INTERVAL_S = 0.05
"""Between two deltas of one command."""

_NOTE_BYTES = 64
"""Room for the line that says how much was left out."""


class OutputDeltas:
    """Turns the output of one command into deltas; what is too much is cut in the middle."""

    def __init__(self, emit: Callable[[str], None]) -> None:
        """`emit` never waits."""
        self._emit = emit
        self._loop = asyncio.get_running_loop()
        self._pending = KeptOutput(MAX_DELTA_BYTES - _NOTE_BYTES)
        self._next_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, data: bytes) -> None:
        """Take output; it is sent now, or with what comes soon."""
        self._pending.add(data)
        if self._timer is not None:
            return
        wait_s = self._next_s - self._loop.time()
        if wait_s <= 0:
            self.send()
        else:
            self._timer = self._loop.call_later(wait_s, self.send)

    def send(self, *, is_last: bool = False) -> None:
        """Send at once what waits; a character that is not whole yet only if nothing follows."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pending = self._pending
        if not pending.total:
            return
        self._pending = KeptOutput(MAX_DELTA_BYTES - _NOTE_BYTES)
        if pending.lost_bytes:
            text = pending.text()
        else:
            data = pending.all()
            # A character that is not whole yet waits for its rest.
            whole = data if is_last else without_split_end(data)
            self._pending.add(data[len(whole) :])
            text = whole.decode(errors="replace")
        if text:
            self._next_s = self._loop.time() + INTERVAL_S
            self._emit(_within(text))


def _within(text: str) -> str:
    """Cut what grew beyond the bound, as each byte that is no UTF-8 becomes three."""
    encoded = text.encode()
    if len(encoded) <= MAX_DELTA_BYTES:
        return text
    cut = KeptOutput(MAX_DELTA_BYTES - _NOTE_BYTES)
    cut.add(encoded)
    return cut.text()
