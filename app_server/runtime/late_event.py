"""An event for values of which there are thousands, and for few of which anybody waits."""

import anyio
import anyio.lowlevel


class LateEvent:
    """`anyio.Event` of 50 bytes instead of 900 while it has no waiters."""

    __slots__ = ("_event", "_is_set")

    def __init__(self) -> None:
        self._is_set = False
        self._event: anyio.Event | None = None

    def set(self) -> None:
        """Set the event and wake its waiters."""
        self._is_set = True
        event, self._event = self._event, None
        if event is not None:
            event.set()

    def is_set(self) -> bool:
        """Whether it was set."""
        return self._is_set

    async def wait(self) -> None:
        """Wait until it is set."""
        if self._is_set:
            await anyio.lowlevel.checkpoint()
            return
        if self._event is None:
            self._event = anyio.Event()
        await self._event.wait()
