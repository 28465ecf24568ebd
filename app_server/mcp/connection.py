"""A connected MCP server, as the rest of this package sees it.

Source: docs/mcp.md, "Connections".
"""

from typing import Protocol

import anyio.to_thread

from app_server.mcp.bounds import bytes_of, check_bytes, check_count
from app_server.mcp.errors import StartupFailed
from app_server.mcp.record import Learned, ServerRecord
from app_server.mcp.tools.listing import Listing
from app_server.mcp_wire.errors import ProgressCallback
from app_server.mcp_wire.json_rpc_client import Asker, Caller
from app_server.runtime.late_event import LateEvent
from protocol.model import JsonObject

MAX_PAGES = 64
"""Pages of one list; what lies behind them is not asked for."""

PAGE_S = 30.0
"""For one page of a list."""


class McpConnection(Protocol):
    """One live connection."""

    closed: LateEvent
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
        caller: Caller | None = None,
    ) -> JsonObject:
        """Call a method and return the result as the server sent it.

        With `on_progress` the request carries a progress token. Questions that the server asks on
        account of it go to its asker, in place of the owner, where it is known that they do.
        Cancelling notifies the server.

        Raises:
            PeerError, TransportClosed, RequestTimedOut
        """


class ConnectionOwner(Asker, Protocol):
    """The owner of a connection, called with its start, its failure and its changes."""

    can_elicit: bool
    """Whether there is anybody who could be asked."""

    @property
    def stop(self) -> LateEvent:
        """Set to end the connection."""

    @property
    def learned(self) -> Learned:
        """Findings of earlier connections."""

    @property
    def record(self) -> ServerRecord:
        """Record of the server's starts, failures and restarts."""

    def ready(self, connection: McpConnection, listing: Listing) -> None:
        """Take the connection: the server can be called."""

    def failed(self, failure: StartupFailed) -> None:
        """Take the failure: the server did not start."""

    def lost(self, reason: str) -> None:
        """Note that the server has ended without being stopped, after it was ready."""

    def tools_changed(self) -> None:
        """Note that the server has other tools than those it listed."""


async def list_all(
    connection: McpConnection, method: str, member: str, caller: Caller | None = None
) -> tuple[list[JsonObject], JsonObject | None]:
    """Follow a list's cursors to its end; gives the elements and the first page's `_meta`.

    Questions that a page leads to are those of `caller`; see McpConnection.

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
        result = await connection.request(method, params, timeout_s=PAGE_S, caller=caller)
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
