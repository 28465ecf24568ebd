"""thread/backgroundTerminals/list: commands that go on running behind a thread's turns.

No command is run here yet, so no thread has one.
"""

from collections.abc import Mapping

from app_server.handlers.errors import thread_failures
from app_server.handlers.services import Services
from app_server.rpc.context import Handler, RequestContext
from app_server.views.offset_pages import invalid_cursor
from protocol.cursors import is_offset
from protocol.host import (
    ThreadBackgroundTerminalsListParams,
    ThreadBackgroundTerminalsListResponse,
)


class BackgroundTerminalHandlers:
    """The method thread/backgroundTerminals/list."""

    def __init__(self, services: Services) -> None:
        self._sessions = services.sessions

    @property
    def routes(self) -> Mapping[str, Handler]:
        """Method to handler."""
        return {"thread/backgroundTerminals/list": self.list_terminals}

    async def list_terminals(
        self, context: RequestContext, params: ThreadBackgroundTerminalsListParams
    ) -> ThreadBackgroundTerminalsListResponse:
        """List the terminals of a loaded thread: none."""
        with thread_failures(params.thread_id, f"thread not found: {params.thread_id}"):
            self._sessions.get(params.thread_id)
        if params.cursor is not None and not is_offset(params.cursor):
            raise invalid_cursor(params.cursor)
        return ThreadBackgroundTerminalsListResponse(data=[])
