"""One client's session with one route: calls one at a time, and questions meanwhile.

Source: docs/apps.md, "Local routes"; MCP 2025-06-18, "Elicitation".
"""

import logging
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import anyio
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError

from app_server.apps.routes.backing import Backing, ElicitationMode, UpstreamSession
from app_server.mcp_wire.errors import PeerError, ProgressCallback
from app_server.mcp_wire.held_calls import HeldCall
from protocol.jsonrpc.errors import INTERNAL_ERROR
from protocol.model import Json, JsonObject

logger = logging.getLogger(__name__)

_CANCEL: JsonObject = {"action": "cancel"}
_STATE = "local_session"


class LocalSession:
    """A DownstreamPeer, and the one place that its calls go through."""

    def __init__(
        self,
        connection: Connection,
        server: str,
        backing: Backing,
        held: HeldCall | None = None,
    ) -> None:
        """Make the session of a client, or that of the one call of a client without sessions."""
        self._connection = connection
        self._backing = backing
        self._held = held
        own = connection.session_id if held is None else uuid4().hex
        self._key: Hashable = (backing.generation_id, server, own)
        self._slot = anyio.Lock()
        self._waiting = 0
        self._has_call = False
        self._listens = False
        """Whether the client was found listening, or was waited for in vain."""
        self._questions: set[anyio.CancelScope] = set()

    @classmethod
    def of(
        cls,
        context: ServerRequestContext[Any],
        server: str,
        backing: Backing,
        held: HeldCall | None,
    ) -> "LocalSession":
        """Return the session of a request; its end closes its upstream session.

        `held` is a call of a client without sessions, which is asked by its result.
        """
        # The SDK has no public way from a request to its connection, whose state and exit stack
        # are there for exactly this.
        connection: Connection = context.session._connection
        if held is not None:
            return cls(connection, server, backing, held)
        session = connection.state.get(_STATE)
        if session is None:
            session = connection.state[_STATE] = cls(connection, server, backing)
            connection.exit_stack.push_async_callback(session._leave)
        assert isinstance(session, LocalSession)
        return session

    @asynccontextmanager
    async def call(self) -> AsyncIterator[UpstreamSession]:
        """Wait for the session's turn and give its upstream session; questions may be asked.

        Leaving cancels the questions that are open. Credentials are checked at each step.

        Raises:
            PeerError: -32603, credentials have changed, or too many calls wait; or there is no
                upstream session to be had.
        """
        limit = self._backing.bounds.waiting_calls
        if self._waiting > limit:
            raise PeerError(INTERNAL_ERROR, f"more than {limit} calls wait")
        self._waiting += 1
        try:
            async with self._slot:
                self._backing.check()
                async with self._backing.pool.session_of(self._key, self) as upstream:
                    self._backing.check()
                    self._has_call = True
                    try:
                        yield upstream
                    finally:
                        self._has_call = False
                        for question in self._questions:
                            question.cancel()
        finally:
            self._waiting -= 1
            if self._held is not None:
                with anyio.CancelScope(shield=True):
                    await self._leave()

    async def _leave(self) -> None:
        close_s = self._backing.bounds.close_s
        with anyio.move_on_after(close_s) as limit:
            await self._backing.pool.close(self._key)
        if limit.cancelled_caught:
            logger.warning("a session with the endpoint did not end within %g s", close_s)

    def _supports(self, mode: ElicitationMode) -> bool:
        """Whether the client said that it can be asked in this mode."""
        capabilities = self._connection.client_capabilities
        if capabilities is None:
            return False
        if mode == "openai/form":
            return mode in (capabilities.extensions or {})
        elicitation = capabilities.elicitation
        if elicitation is None:
            return False
        if mode == "url":
            return elicitation.url is not None
        # Before there were modes, the bare capability meant forms.
        return mode == "form" and (elicitation.form is not None or elicitation.url is None)

    async def elicit(self, params: JsonObject) -> JsonObject:
        """Ask the client; see DownstreamPeer. Whatever goes wrong is `cancel`."""
        mode: ElicitationMode = params.get("mode") or "form"
        is_full = len(self._questions) >= self._backing.bounds.open_questions
        if is_full or not self._has_call or not self._supports(mode):
            return _CANCEL
        with anyio.CancelScope() as question:
            self._questions.add(question)
            try:
                return await self._ask(mode, params)
            finally:
                self._questions.discard(question)
        return _CANCEL

    async def _ask(self, mode: ElicitationMode, params: JsonObject) -> JsonObject:
        if self._held is not None:
            return await self._held.elicit(params)
        with anyio.move_on_after(self._backing.bounds.delivery_s) as delivery:
            await self._backing.streams.wait_for(self._connection.session_id or "")
        if delivery.cancelled_caught:
            logger.warning("a question was cancelled: its client does not listen")
            return _CANCEL
        method = "elicitation/create"
        if mode == "openai/form":
            method = mode
            params = {key: value for key, value in params.items() if key != "mode"}
        try:
            return await self._connection.send_raw_request(method, params)
        except MCPError as exc:
            logger.warning("a question was cancelled: the client answered with error %d", exc.code)
            return _CANCEL

    def progress_of(
        self, context: ServerRequestContext[Any], token: Json
    ) -> ProgressCallback | None:
        """Return a callback that forwards progress to the client; None if it wants none."""
        if isinstance(token, bool) or not isinstance(token, str | int):
            return None
        if self._held is not None or context.session.can_send_request:
            # The answer is a stream, with room for it: on another one it may come after the answer.
            return context.session.report_progress

        async def report(progress: float, total: float | None, message: str | None) -> None:
            params = {
                "progressToken": token,
                "progress": progress,
                "total": total,
                "message": message,
            }
            said = {key: value for key, value in params.items() if value is not None}
            if not self._listens:
                self._listens = True
                with anyio.move_on_after(self._backing.bounds.progress_s):
                    await self._backing.streams.wait_for(self._connection.session_id or "")
            await self._connection.notify("notifications/progress", said)

        return report
