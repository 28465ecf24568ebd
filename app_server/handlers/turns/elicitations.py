"""thread/increment_elicitation, thread/decrement_elicitation.

Source: docs/tools.md, "Elicitations".
"""

import contextlib
from collections import Counter

from app_server.handlers.errors import loaded_thread
from app_server.handlers.services import Services
from app_server.rpc.context import RequestContext, Routes
from app_server.sessions.out_of_band import NoOpenElicitation, TooManyElicitations
from app_server.sessions.session import ThreadSession
from protocol.jsonrpc.errors import invalid_request
from protocol.threads.changes import (
    ThreadDecrementElicitationParams,
    ThreadDecrementElicitationResponse,
    ThreadIncrementElicitationParams,
    ThreadIncrementElicitationResponse,
)


class ElicitationHandlers:
    """The methods about questions outside of the protocol."""

    def __init__(self, services: Services) -> None:
        self._sessions = services.sessions
        self._hub = services.hub
        self._open: dict[int, Counter[ThreadSession]] = {}
        """By connection: what it has opened and not settled."""
        self.routes: Routes = {
            "thread/decrement_elicitation": self.decrement,
            "thread/increment_elicitation": self.increment,
        }

    async def increment(
        self, context: RequestContext, params: ThreadIncrementElicitationParams
    ) -> ThreadIncrementElicitationResponse:
        """Stop the clocks of a thread; a client that goes lets its own go on."""
        session = loaded_thread(self._sessions, params.thread_id)
        questions = session.out_of_band
        try:
            questions.open()
        except TooManyElicitations as exc:
            text = f"there are {questions.count} out-of-band elicitations already"
            raise invalid_request(text, "tooManyElicitations") from exc
        connection_id = context.connection_id
        self._open.setdefault(connection_id, Counter())[session] += 1
        self._hub.connections.when_gone(connection_id, self._gone)
        return ThreadIncrementElicitationResponse(count=questions.count, paused=True)

    async def decrement(
        self, context: RequestContext, params: ThreadDecrementElicitationParams
    ) -> ThreadDecrementElicitationResponse:
        """Let the clocks of a thread go on once everything is settled."""
        session = loaded_thread(self._sessions, params.thread_id)
        questions = session.out_of_band
        try:
            questions.settle()
        except NoOpenElicitation as exc:
            text = "out-of-band elicitation count is already zero"
            raise invalid_request(text, "noElicitation") from exc
        own = self._open.get(context.connection_id, Counter())
        # Another client may settle what one has opened.
        owners = (opened for opened in (own, *self._open.values()) if opened[session])
        if (owner := next(owners, None)) is not None:
            owner[session] -= 1
        return ThreadDecrementElicitationResponse(
            count=questions.count, paused=bool(questions.count)
        )

    def _gone(self, connection_id: int) -> None:
        for session in self._open.pop(connection_id, Counter[ThreadSession]()).elements():
            with contextlib.suppress(NoOpenElicitation):
                session.out_of_band.settle()
