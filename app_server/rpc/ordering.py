"""Order among the requests of one connection: lanes by key, first come first served.

A lane lets one exclusive request through, or any number of shared ones that arrived together.
A place in a lane is taken when the request is read, so order on the wire is order of execution.
Source: docs/wire.md, "Order".
"""

from collections import deque
from collections.abc import Iterator
from typing import TypeAlias

import anyio

from protocol.contract.specs import Access

OrderingKey: TypeAlias = str


class LanePlace:
    """One request's place in a lane; enter it with `async with`."""

    __slots__ = ("_open", "_queue", "key", "shared")

    def __init__(self, queue: "KeyedQueue", key: OrderingKey, *, shared: bool) -> None:
        self.key = key
        self.shared = shared
        self._queue = queue
        self._open: anyio.Event | None = None

    async def __aenter__(self) -> None:
        if self._queue.may_enter(self):
            return
        self._open = anyio.Event()
        try:
            await self._open.wait()
        except BaseException:
            self._queue.leave(self)
            raise

    async def __aexit__(self, *_: object) -> None:
        self._queue.leave(self)

    def let_in(self) -> None:
        """Wake the request if it waits."""
        if self._open is not None:
            self._open.set()


class KeyedQueue:
    """The lanes of one connection; a lane exists only while somebody is in it."""

    def __init__(self) -> None:
        self._lanes: dict[OrderingKey, deque[LanePlace]] = {}

    def take_place(self, key: OrderingKey, access: Access) -> LanePlace:
        """Queue up behind all earlier requests with this key. The place must be entered.

        Cancelling while waiting gives the place up.
        """
        place = LanePlace(self, key, shared=access is Access.SHARED)
        self._lanes.setdefault(key, deque()).append(place)
        return place

    def may_enter(self, place: LanePlace) -> bool:
        """Whether it is the turn of a place."""
        return place in _open_places(self._lanes[place.key])

    def leave(self, place: LanePlace) -> None:
        """Give a place up, and let in whose turn it is then."""
        lane = self._lanes[place.key]
        lane.remove(place)
        if not lane:
            del self._lanes[place.key]
        for open_place in _open_places(lane):
            open_place.let_in()


def _open_places(lane: deque[LanePlace]) -> Iterator[LanePlace]:
    """Give the first place, and the shared ones right behind it if it is shared itself."""
    for position, place in enumerate(lane):
        if position > 0 and not (place.shared and lane[0].shared):
            return
        yield place
