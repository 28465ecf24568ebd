"""thread/compact/start. Source: docs/compaction.md."""

from collections.abc import Mapping

from app_server.handlers.errors import thread_failures
from app_server.handlers.services import Services
from app_server.rpc.context import Handler, RequestContext
from protocol.planning import ThreadCompactStartParams, ThreadCompactStartResponse


class CompactionHandlers:
    """The methods about compaction."""

    def __init__(self, services: Services) -> None:
        self._sessions = services.sessions

    @property
    def routes(self) -> Mapping[str, Handler]:
        """Method to handler."""
        return {"thread/compact/start": self.start}

    async def start(
        self, context: RequestContext, params: ThreadCompactStartParams
    ) -> ThreadCompactStartResponse:
        """Sum a thread up in a turn of its own, in the place of one that runs."""
        with thread_failures(params.thread_id):
            begin = await self._sessions.get(params.thread_id).compaction.start()
        context.after_answer(begin)
        return ThreadCompactStartResponse()
