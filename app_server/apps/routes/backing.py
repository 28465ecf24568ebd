"""Resources that all routes of one generation share, and their ports.

Imports nothing of the MCP SDK: most generations are never called.
Source: docs/apps.md, "Generations", "Local routes".
"""

from collections.abc import Hashable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

import anyio

from app_server.mcp_wire.errors import PeerError, ProgressCallback
from protocol.jsonrpc.errors import INTERNAL_ERROR
from protocol.model import JsonObject

ElicitationMode: TypeAlias = Literal["form", "url", "openai/form"]


class DownstreamPeer(Protocol):
    """The client of one local session, as the endpoint's questions reach it."""

    async def elicit(self, params: JsonObject) -> JsonObject:
        """Ask the client and return its answer: `action`, perhaps `content` and `_meta`.

        `params` go down as they are; with `mode` `openai/form` they are those of the method of
        that name, and `mode` stays behind. The answer is `cancel` without a call that runs, for a
        client that cannot be asked so, and once the call has ended.
        """


class UpstreamSession(Protocol):
    """One session with the endpoint."""

    async def request(
        self, method: str, params: JsonObject, *, on_progress: ProgressCallback | None = None
    ) -> JsonObject:
        """Call a method and return the result as it came; without a time limit.

        Cancelling tells the endpoint.

        Raises:
            PeerError: the endpoint answered with an error, or did not answer.
        """


class SessionPool(Protocol):
    """Sessions with the endpoint, one for each local session that makes calls."""

    def session_of(
        self, key: Hashable, peer: DownstreamPeer
    ) -> AbstractAsyncContextManager[UpstreamSession]:
        """Get or open the session of a key; it is kept when the context ends.

        Raises:
            PeerError: there is none to be had.
        """

    async def close(self, key: Hashable) -> None:
        """End the session of a key, if there is one."""

    def shut_down(self) -> None:
        """Start closing all sessions."""


class AuthGuard(Protocol):
    """The credentials that something was built with."""

    def holds(self) -> bool:
        """Whether they are still the current ones."""

    async def settle(self) -> None:
        """Find out whether they are; `holds` says it from then on."""


ENDED = "these app servers have been shut down"
OUTDATED = "the credentials for apps are out of date"


class OpenStreams:
    """Open event streams by session, for requests of the server.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteBounds:
    """Bounds of the routes of a generation, and of their sessions."""

    sessions: int = 1024
    """Open MCP sessions of one route; a client above that gets 503."""
    request_bytes: int = 4 * 1024 * 1024
    """Of one request; a larger one gets 413."""
    waiting_calls: int = 64
    """Of one session, behind the one that runs; more are refused."""
    open_questions: int = 16
    """Of one call; what is asked beyond that is cancelled."""
    progress_s: float = 1.0
    """For a client to listen, before the first progress of its session; what comes later than that
    to one that does not is lost."""
    delivery_s: float = 10.0
    """For a client's listening stream, before a question is cancelled. Once it is sent its answer
    has no limit but the end of the call: a human may be thinking."""
    refresh_s: float = 45.0
    """For a new inventory, once the user has signed in."""
    close_s: float = 2.0
    """For the end of what a session opened upstream."""


@dataclass(frozen=True, slots=True)
class Backing:
    """The resources that all routes of one generation share."""

    generation_id: str
    pool: SessionPool
    guard: AuthGuard
    streams: OpenStreams
    running: Running
    bounds: RouteBounds = field(default_factory=RouteBounds)

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
