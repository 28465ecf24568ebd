"""Order among the requests of one connection: queues by key, first come first served.

A queue lets one exclusive request through, or any number of shared ones that arrived together.
A place in a queue is taken when the request is read, so order on the wire is order of execution.
Source: docs/wire.md, "Order".
"""

from collections import deque
from collections.abc import Iterator

import anyio

from protocol.contract.specs import Access


class QueuePlace:
    """One request's place in a queue; enter it with `async with`."""

    __slots__ = ("_open", "_queues", "key", "shared")

    def __init__(self, queues: "RequestQueues", key: str, *, shared: bool) -> None:
        self.key = key
        self.shared = shared
        self._queues = queues
        self._open: anyio.Event | None = None

    async def __aenter__(self) -> None:
        if self._queues.may_enter(self):
            return
        self._open = anyio.Event()
        try:
            await self._open.wait()
        except BaseException:
            self._queues.leave(self)
            raise

    async def __aexit__(self, *_: object) -> None:
        self._queues.leave(self)

    def let_in(self) -> None:
        """Wake the request if it waits."""
        if self._open is not None:
            self._open.set()


class RequestQueues:
    """The queues of one connection; a queue exists only while a request is in it."""

    def __init__(self) -> None:
        self.by_key: dict[str, deque[QueuePlace]] = {}
        """The places of each queue, the first come first."""

    def take_place(self, key: str, access: Access) -> QueuePlace:
        """Queue up behind all earlier requests with this key. The place must be entered.

        Cancelling while waiting gives the place up.
        """
        place = QueuePlace(self, key, shared=access is Access.SHARED)
        self.by_key.setdefault(key, deque()).append(place)
        return place

    def may_enter(self, place: QueuePlace) -> bool:
        """Whether it is the turn of a place."""
        return place in _open_places(self.by_key[place.key])

    def leave(self, place: QueuePlace) -> None:
        """Give a place up, and let in whose turn it is then."""
        queue = self.by_key[place.key]
        queue.remove(place)
        if not queue:
            del self.by_key[place.key]
        for open_place in _open_places(queue):
            open_place.let_in()


def _open_places(queue: deque[QueuePlace]) -> Iterator[QueuePlace]:
    """Give the first place, and the shared ones right behind it if it is shared itself."""
    for position, place in enumerate(queue):
        if position > 0 and not (place.shared and queue[0].shared):
            return
        yield place
