"""A connected MCP server, as the rest of this package sees it.

A server that is known without being asked is connected to when it is first used. That connection
ends when it has been idle for a while, and is made again by the next request.
Source: docs/mcp.md, "Connections".
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Protocol

import anyio
import anyio.abc
import anyio.to_thread

from app_server.mcp.bounds import bytes_of, check_bytes, check_count
from app_server.mcp.errors import ClientUnavailable, StartupFailed
from app_server.mcp.tools.listing import Listing
from app_server.mcp_wire.errors import ProgressCallback, TransportClosed
from app_server.mcp_wire.json_rpc_client import Asker
from app_server.observability.log_context import THREAD, start_apart
from app_server.runtime.loader import LoadFailed
from protocol.model import JsonObject

MAX_PAGES = 64
"""Pages of one list; what lies behind them is not asked for."""

PAGE_S = 30.0
"""For one page of a list."""


class McpConnection(Protocol):
    """One live connection."""

    closed: anyio.Event
    """Set when the server has ended."""

    @property
    def keeps_session(self) -> bool:
        """Whether the server may remember what was said on the connection, once it is ready."""

    @property
    def pid(self) -> int | None:
        """Id of the server's process; None if it is not one of this machine."""

    async def request(
        self,
        method: str,
        params: JsonObject,
        *,
        timeout_s: float | None = None,
        on_progress: ProgressCallback | None = None,
        asker: Asker | None = None,
    ) -> JsonObject:
        """Call a method and return the result as the server sent it.

        With `on_progress` the request carries a progress token. Questions that the server asks on
        account of it go to `asker`, in place of the owner, where it is known that they do.
        Cancelling notifies the server.

        Raises:
            PeerError, TransportClosed, RequestTimedOut
        """


class ConnectionOwner(Protocol):
    """The owner of a connection, called with its start, its failure and its changes."""

    stop: anyio.Event
    """Set to end the connection."""
    can_elicit: bool
    """Whether there is anybody who could be asked."""
    protocol_version: str | None
    """Of MCP, as a connection agreed on it last; None before the first."""

    def misbehaved(self, what: str) -> None:
        """Note what the server did against MCP; the text begins with a verb."""

    def ready(self, connection: McpConnection, listing: Listing) -> None:
        """Take the connection: the server can be called."""

    def failed(self, failure: StartupFailed) -> None:
        """Take the failure: the server did not start."""

    def lost(self, reason: str) -> None:
        """Note that the server has ended without being stopped, after it was ready."""

    def tools_changed(self) -> None:
        """Note that the server has other tools than those it listed."""

    async def elicit(self, params: JsonObject) -> JsonObject:
        """Ask the user what the server wants to know; see ElicitationPort."""


async def list_all(
    connection: McpConnection, method: str, member: str
) -> tuple[list[JsonObject], JsonObject | None]:
    """Follow a list's cursors to its end; gives the elements and the first page's `_meta`.

    Raises:
        PeerError, TransportClosed, RequestTimedOut: the server does not give the list.
        ListTooLarge: it gives more than is read.
    """
    count = size = 0
    elements: list[JsonObject] = []
    meta: JsonObject | None = None
    cursor: str | None = None
    for page in range(MAX_PAGES):
        params = {} if cursor is None else {"cursor": cursor}
        result = await connection.request(method, params, timeout_s=PAGE_S)
        if page == 0:
            meta = result.get("_meta")
        found = result.get(member)
        if isinstance(found, list):
            count += len(found)
            check_count(member, count)
            size += await anyio.to_thread.run_sync(bytes_of, found)
            check_bytes(member, size)
            elements.extend(element for element in found if isinstance(element, dict))
        cursor = result.get("nextCursor")
        if not isinstance(cursor, str):
            break
    return elements, meta


logger = logging.getLogger(__name__)

IDLE_S = 60.0
"""Seconds without use after which a connection is ended."""

Connect = Callable[[ConnectionOwner], Awaitable[None]]
"""Holds one connection from start to end."""


class OnDemandConnection:
    """An McpConnection that is open while there is something to ask; `tasks` owns it.

    Without one it takes no task: a thread may have hundreds of such servers, and calls few.
    """

    def __init__(
        self,
        tasks: anyio.abc.TaskGroup,
        connect: Connect,
        owner: ConnectionOwner,
        ended: Callable[[], None],
        idle_s: float = IDLE_S,
    ) -> None:
        """Connect nowhere yet; the server's questions go to `owner`.

        `ended` is called once, after `close`, when no connection is left.
        """
        self.closed = anyio.Event()
        self.keeps_session = True
        self.pid = None
        self._ended: Callable[[], None] | None = ended
        self._held = 0
        self._scopes: set[anyio.CancelScope] = set()
        self._tasks = tasks
        self._connect = connect
        self._owner: ConnectionOwner | None = owner
        self._idle_s = idle_s
        self._used: _UsedConnection | None = None

    def close(self) -> None:
        """End the connection and make no other one.

        Whom it was for is forgotten: the owner knows this connection, and lists its tools.
        """
        self.closed.set()
        self._owner = None
        for scope in self._scopes:
            scope.cancel()
        self._note_end()

    @property
    def is_over(self) -> bool:
        """Whether it was closed and no connection is left."""
        return self.closed.is_set() and not self._held

    def _note_end(self) -> None:
        if self.is_over and self._ended is not None:
            ended, self._ended = self._ended, None
            ended()

    async def request(
        self,
        method: str,
        params: JsonObject,
        *,
        timeout_s: float | None = None,
        on_progress: ProgressCallback | None = None,
        asker: Asker | None = None,
    ) -> JsonObject:
        """Call a method, in a connection that is made for it if there is none; see McpConnection.

        Raises:
            ClientUnavailable: no connection can be made; the next request tries again.
            PeerError, TransportClosed, RequestTimedOut
        """
        async with self._connected() as connection:
            return await connection.request(
                method, params, timeout_s=timeout_s, on_progress=on_progress, asker=asker
            )

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[McpConnection]:
        used = self._used
        if used is None or used.is_over:
            if self._owner is None:
                raise TransportClosed
            used = self._used = _UsedConnection(self._owner)
            self._held += 1
            start_apart(self._tasks, self._hold, used, thread_id=THREAD.get())
        with used.use():
            await used.settled.wait()
            if used.live is None:
                raise ClientUnavailable(f"failed to get client: {used.failure}")
            yield used.live

    async def _hold(self, used: "_UsedConnection") -> None:
        try:
            with anyio.CancelScope() as scope:
                self._scopes.add(scope)
                if self.closed.is_set():
                    scope.cancel()
                try:
                    await self._hold_once(used)
                finally:
                    self._scopes.discard(scope)
        finally:
            used.failed(StartupFailed("the connection was closed"))
            self._held -= 1
            self._note_end()

    async def _hold_once(self, used: "_UsedConnection") -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(used.stop_when_idle, self._idle_s)
            try:
                await self._connect(used)
            except LoadFailed as exc:
                used.failed(StartupFailed(f"the client cannot be loaded: {exc}"))
            except Exception:
                # Its tasks may raise anything; it must not reach other servers or the thread.
                logger.exception("the connection to an MCP server broke")
            used.failed(StartupFailed("the connection broke"))
            used.stop.set()
            tasks.cancel_scope.cancel()


class _UsedConnection:
    """One connection and those who use it: a ConnectionOwner in place of another one."""

    def __init__(self, owner: ConnectionOwner) -> None:
        self.stop = anyio.Event()
        self.can_elicit = owner.can_elicit
        self.settled = anyio.Event()
        self.live: McpConnection | None = None
        self.failure: StartupFailed | None = None
        self._owner = owner
        self._users = 0
        self._changed = anyio.Event()

    @property
    def is_over(self) -> bool:
        """Whether it takes no further use."""
        has_died = self.live is not None and self.live.closed.is_set()
        return self.stop.is_set() or self.failure is not None or has_died

    @contextmanager
    def use(self) -> Iterator[None]:
        """Count the context as use."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            self._changed.set()

    async def stop_when_idle(self, idle_s: float) -> None:
        """End the connection once it has been without use for `idle_s`."""
        while True:
            self._changed = anyio.Event()
            with anyio.move_on_after(idle_s) as waited:
                await self._changed.wait()
            if waited.cancelled_caught and not self._users:
                self.stop.set()
                return

    @property
    def protocol_version(self) -> str | None:
        """The owner's; see ConnectionOwner."""
        return self._owner.protocol_version

    @protocol_version.setter
    def protocol_version(self, version: str | None) -> None:
        self._owner.protocol_version = version

    def misbehaved(self, what: str) -> None:
        """Pass it on."""
        self._owner.misbehaved(what)

    def ready(self, connection: McpConnection, listing: Listing) -> None:
        """Take the connection into service; what it lists is known."""
        self.live = connection
        self.settled.set()

    def failed(self, failure: StartupFailed) -> None:
        """Note why there is no connection."""
        if not self.settled.is_set():
            self.failure = failure
            self.settled.set()

    def lost(self, reason: str) -> None:
        """Pass it on; the next request connects anew."""
        self._owner.lost(reason)

    def tools_changed(self) -> None:
        """Pass it on."""
        self._owner.tools_changed()

    async def elicit(self, params: JsonObject) -> JsonObject:
        """Pass the question on; see ConnectionOwner."""
        return await self._owner.elicit(params)
