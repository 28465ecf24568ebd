"""Bounds of a port: its backlog, the connections accepted at once, the sockets that are open.

asyncio tries to accept as many connections at each look as the backlog is long. Where no descriptor
is left it goes on trying, logs each failure, and plans a new look for each: a hundred now, and a
hundred times as many a second later. So listeners are opened with the least backlog, which makes it
take one connection a look, and the system is told of the real one afterwards.
Source: docs/storage.md, "Descriptors"; docs/wire.md, "Bounds"; listen(2).
"""

import asyncio
import logging
import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from app_server.runtime.counted_warnings import warn_counted

HOST = "127.0.0.1"

ASKED_BACKLOG = 1
"""Backlog that listeners are opened with."""

BACKLOG = 128
"""Connections that wait until they are accepted."""


class Listening(Protocol):
    """A socket as event loops hand it out."""

    def fileno(self) -> int:
        """Return its descriptor."""


def lengthen_backlogs(listeners: Iterable[Listening]) -> None:
    """Set the backlog of each listener to BACKLOG connections.

    Raises:
        OSError: no descriptor is left, and a listener is not a `socket.socket`.
    """
    for listener in listeners:
        if isinstance(listener, socket.socket):
            listener.listen(BACKLOG)
            continue
        with socket.socket(fileno=os.dup(listener.fileno())) as same:
            same.listen(BACKLOG)


@contextmanager
def open_port() -> Iterator[socket.socket]:
    """Listen on a free port while the context lasts.

    Raises:
        OSError: no port can be opened.
    """
    # Without the explicit protocol asyncio leaves Nagle's algorithm on, at 40 ms a request.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    with listener:
        listener.bind((HOST, 0))
        listener.listen(BACKLOG)
        yield listener


logger = logging.getLogger(__name__)


class AcceptedSockets:
    """Count the accepted sockets of one port."""

    def __init__(self, most: int) -> None:
        self.most = most
        """At a time; the next one is cut off at once."""
        self.count = 0


class CountedConnection(asyncio.Protocol):
    """A base of connections that count from when they are accepted, not once they are clients."""

    def __init__(self, *arguments: Any, accepted: AcceptedSockets, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._accepted = accepted

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the socket; cut it off where there are too many."""
        super().connection_made(transport)
        self._accepted.count += 1
        if self._accepted.count > self._accepted.most:
            warn_counted(logger, "cut a connection off: there are %d", self._accepted.most)
            assert isinstance(transport, asyncio.Transport)
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Count the socket no longer."""
        self._accepted.count -= 1
        super().connection_lost(exc)
