"""Which connections are subscribed to which thread, and which of them are sent nothing for now."""

from collections.abc import Collection, Mapping, Set
from typing import TypeAlias

from app_server.rpc.context import ConnectionId
from app_server.rpc.hub.replay_buffer import Position

ThreadId: TypeAlias = str

_NOBODY: Set[ConnectionId] = frozenset()
_NONE_HELD: Mapping[ConnectionId, Position] = {}


class Subscribers:
    """The subscriptions of all connections."""

    def __init__(self) -> None:
        self._of_thread: dict[ThreadId, set[ConnectionId]] = {}
        self._of_connection: dict[ConnectionId, set[ThreadId]] = {}
        self._held: dict[ThreadId, dict[ConnectionId, Position]] = {}
        """Subscribers that are sent nothing for now, and how far they know the stream."""

    @property
    def count(self) -> int:
        """Number of subscriptions."""
        return sum(map(len, self._of_thread.values()))

    def of(self, thread_id: ThreadId | None) -> Set[ConnectionId]:
        """Return the subscribers of a thread, held ones included; none for None."""
        return _NOBODY if thread_id is None else self._of_thread.get(thread_id, _NOBODY)

    def held(self, thread_id: ThreadId | None) -> Collection[ConnectionId]:
        """Return those of a thread that are sent nothing for now."""
        return _NONE_HELD if thread_id is None else self._held.get(thread_id, _NONE_HELD)

    def add(self, connection_id: ConnectionId, thread_id: ThreadId) -> None:
        """Subscribe a connection to a thread."""
        self._of_thread.setdefault(thread_id, set()).add(connection_id)
        self._of_connection.setdefault(connection_id, set()).add(thread_id)

    def hold(self, connection_id: ConnectionId, thread_id: ThreadId, position: Position) -> None:
        """Subscribe it, and send it nothing until `release`; it knows what is before `position`."""
        self.add(connection_id, thread_id)
        self._held.setdefault(thread_id, {}).setdefault(connection_id, position)

    def release(self, connection_id: ConnectionId, thread_id: ThreadId) -> Position | None:
        """Hold a connection no longer; returns how far it knows the stream, None if it was not."""
        held = self._held.get(thread_id, {})
        position = held.pop(connection_id, None)
        if not held:
            self._held.pop(thread_id, None)
        return position

    def remove(self, connection_id: ConnectionId, thread_id: ThreadId) -> bool:
        """End a subscription; False if there was none."""
        subscribers = self._of_thread.get(thread_id, set())
        if connection_id not in subscribers:
            return False
        self.release(connection_id, thread_id)
        subscribers.remove(connection_id)
        if not subscribers:
            del self._of_thread[thread_id]
        self._of_connection[connection_id].remove(thread_id)
        return True

    def remove_all(self, connection_id: ConnectionId) -> None:
        """End all subscriptions of a connection."""
        for thread_id in list(self._of_connection.get(connection_id, ())):
            self.remove(connection_id, thread_id)
        self._of_connection.pop(connection_id, None)
