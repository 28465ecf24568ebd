"""Order among the requests of one connection: lanes by key, first come first served.

A lane lets one exclusive request through, or any number of shared ones that arrived together.
A place in a lane is taken when the request is read, so order on the wire is order of execution.
Source: docs/wire.md, "Order".
"""

from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import TypeAlias

import anyio

from protocol.specs import Access

OrderingKey: TypeAlias = str


class LanePlace:
    """One request's place in a lane; enter it with `async with`."""

    __slots__ = ("_lane", "_open", "shared")

    def __init__(self, lane: "_Lane", *, shared: bool) -> None:
        self.shared = shared
        self._lane = lane
        self._open: anyio.Event | None = None

    async def __aenter__(self) -> None:
        if self._lane.may_enter(self):
            return
        self._open = anyio.Event()
        try:
            await self._open.wait()
        except BaseException:
            self._lane.leave(self)
            raise

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._lane.leave(self)

    def let_in(self) -> None:
        """Wake the request if it waits."""
        if self._open is not None:
            self._open.set()


class _Lane:
    def __init__(self, lanes: dict[OrderingKey, "_Lane"], key: OrderingKey) -> None:
        self._lanes = lanes
        self._key = key
        self._places: deque[LanePlace] = deque()

    def take_place(self, *, shared: bool) -> LanePlace:
        place = LanePlace(self, shared=shared)
        self._places.append(place)
        return place

    def may_enter(self, place: LanePlace) -> bool:
        return any(place is open_place for open_place in self._open_places())

    def leave(self, place: LanePlace) -> None:
        self._places.remove(place)
        if not self._places:
            del self._lanes[self._key]
        for open_place in self._open_places():
            open_place.let_in()

    def _open_places(self) -> Iterator[LanePlace]:
        for position, place in enumerate(self._places):
            if position > 0 and not (place.shared and self._places[0].shared):
                return
            yield place


class KeyedQueue:
    """The lanes of one connection; a lane exists only while somebody is in it."""

    def __init__(self) -> None:
        self._lanes: dict[OrderingKey, _Lane] = {}

    def take_place(self, key: OrderingKey, access: Access) -> LanePlace:
        """Queue up behind all earlier requests with this key. The place must be entered.

        Cancelling while waiting gives the place up.
        """
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(self._lanes, key)
        return lane.take_place(shared=access is Access.SHARED)
