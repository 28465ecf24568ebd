"""The resources that all routes of one generation share: pool, credentials, running calls.

Imports nothing of the MCP SDK: most generations are never called.
Source: docs/apps.md, "Generations".
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import anyio

from app_server.apps.routes.ports import AuthGuard, UpstreamPool
from app_server.mcp_wire.errors import PeerError
from protocol.jsonrpc.errors import INTERNAL_ERROR

ENDED = "these app servers have been shut down"
OUTDATED = "the credentials for apps are out of date"


class OpenStreams:
    """Which sessions have a stream open, on which they get what the server asks.

    Source: MCP 2025-06-18, "Listening for Messages from the Server".
    """

    def __init__(self) -> None:
        self._open: set[str] = set()
        self._changed = anyio.Event()

    def opened(self, session_id: str) -> None:
        """Note that a session listens."""
        self._open.add(session_id)
        self._changed.set()
        self._changed = anyio.Event()

    def closed(self, session_id: str) -> None:
        """Note that it does not any more."""
        self._open.discard(session_id)

    async def wait_for(self, session_id: str) -> None:
        """Wait until a session listens; without a time limit."""
        while session_id not in self._open:
            await self._changed.wait()


class Running:
    """The pieces of work that are under way."""

    def __init__(self) -> None:
        self._scopes: set[anyio.CancelScope] = set()
        self._ended = False

    @contextmanager
    def work(self) -> Iterator[None]:
        """Count the context as work.

        Raises:
            PeerError: -32603, all work was ended before or meanwhile.
        """
        if self._ended:
            raise PeerError(INTERNAL_ERROR, ENDED)
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                yield
            finally:
                self._scopes.discard(scope)
        if scope.cancelled_caught:
            raise PeerError(INTERNAL_ERROR, ENDED)

    def end(self) -> None:
        """Cancel all work, and let none begin."""
        self._ended = True
        for scope in self._scopes:
            scope.cancel()


@dataclass(frozen=True, slots=True)
class Backing:
    """The resources that all routes of one generation share."""

    generation_id: str
    pool: UpstreamPool
    guard: AuthGuard
    streams: OpenStreams
    running: Running

    def check(self) -> None:
        """Go on only with the credentials that the generation was built with.

        Raises:
            PeerError: -32603, they have changed.
        """
        if not self.guard.holds():
            raise PeerError(INTERNAL_ERROR, OUTDATED)

    async def settle(self) -> None:
        """Check once more right before a request is sent: other processes may sign out as well.

        Raises:
            PeerError: see `check`.
        """
        await self.guard.settle()
        self.check()
