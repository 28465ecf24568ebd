"""The connections that are open, and what is to be done when one ends."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from app_server.rpc.context import ConnectionId
from app_server.rpc.hub.peer import Peer

WhenGone: TypeAlias = Callable[[ConnectionId], None]
"""Takes the connection that has ended; does not wait."""


class Connections:
    """The connections of one server, by ids that are never used again."""

    def __init__(self) -> None:
        self.peers: dict[ConnectionId, Peer] = {}
        """Open connections, in the order in which they came; only read from outside."""
        self._ids = itertools.count(1)
        self._when_gone: dict[ConnectionId, dict[WhenGone, None]] = {}

    @contextmanager
    def opened(self, peer: Peer) -> Iterator[ConnectionId]:
        """Know a connection for as long as the context lasts; then run what waits for its end."""
        connection_id = next(self._ids)
        self.peers[connection_id] = peer
        self._when_gone[connection_id] = {}
        try:
            yield connection_id
        finally:
            del self.peers[connection_id]
            self.end(connection_id)
            del self._when_gone[connection_id]

    def end(self, connection_id: ConnectionId) -> None:
        """Run what waits for the end of a connection; it may stay open for its last answers."""
        actions = self._when_gone[connection_id]
        while actions:
            action = next(iter(actions))
            del actions[action]
            action(connection_id)

    def when_gone(self, connection_id: ConnectionId, action: WhenGone) -> None:
        """Run `action` when a connection has ended; at once if it has.

        The same action is run once, however often it was given.
        """
        if connection_id in self._when_gone:
            self._when_gone[connection_id][action] = None
        else:
            action(connection_id)

    def waiting_chars(self, connection_id: ConnectionId) -> int:
        """Return how much waits to be sent to a connection; 0 once it has ended."""
        peer = self.peers.get(connection_id)
        return 0 if peer is None else peer.load.chars
