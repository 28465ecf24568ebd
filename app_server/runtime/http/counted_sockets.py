"""Bounds the sockets that a port accepts, from before anything is read from them.

Source: docs/wire.md, "Bounds"; docs/environments.md, "The exec server".
"""

import asyncio
import logging
from typing import Any

from app_server.runtime.counted_warnings import warn_counted

logger = logging.getLogger(__name__)


class AcceptedSockets:
    """Counts the sockets of one port: clients, and who may become one."""

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
