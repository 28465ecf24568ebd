"""The endpoint's questions to a user, brought to the one client whose call is running.

Source: docs/apps.md, "Questions of the endpoint"; MCP 2025-06-18, "Elicitation".
"""

from collections.abc import Iterator
from contextlib import contextmanager

import anyio

from app_server.apps.routes.ports import DownstreamPeer, ElicitationMode
from app_server.mcp_wire.errors import BadQuestion
from protocol.model import JsonObject

MAX_OPEN = 16
"""Questions of one session that are open; what is asked beyond that is cancelled."""

OPENAI_FORM: ElicitationMode = "openai/form"
METHODS = ("elicitation/create", OPENAI_FORM)
"""Requests of the endpoint that are questions."""


class ElicitationBridge:
    """Knows who may be asked now: the client whose call holds the session, or nobody."""

    def __init__(self) -> None:
        self._peer: DownstreamPeer | None = None
        self._open: set[anyio.CancelScope] = set()

    @contextmanager
    def held_by(self, peer: DownstreamPeer) -> Iterator[None]:
        """Bring questions to a client; leaving cancels those that are open."""
        assert self._peer is None, "a session has one call at a time"
        self._peer = peer
        try:
            yield
        finally:
            self._peer = None
            for question in self._open:
                question.cancel()

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        """Bring a question of the endpoint and return the answer as it came.

        It is `cancel` if nobody is there, if the client cannot be asked so, and when the call ends.

        Raises:
            BadQuestion: the mode is unknown, or `_meta` is no object.
        """
        mode = _mode_of(method, params)
        peer = self._peer
        if peer is None or len(self._open) >= MAX_OPEN or not peer.supports(mode):
            return cancelled()
        with anyio.CancelScope() as question:
            self._open.add(question)
            try:
                return await peer.elicit({**params, "mode": mode} if method == mode else params)
            finally:
                self._open.discard(question)
        return cancelled()


def cancelled() -> JsonObject:
    """Return the answer of somebody who was not asked, or did not answer."""
    return {"action": "cancel"}


def _mode_of(method: str, params: JsonObject) -> ElicitationMode:
    if "_meta" in params and not isinstance(params["_meta"], dict):
        raise BadQuestion("_meta must be an object")
    if method == OPENAI_FORM:
        return OPENAI_FORM
    match params.get("mode", "form"):
        case "form":
            return "form"
        case "url":
            return "url"
        case "openai/form":
            return OPENAI_FORM
    raise BadQuestion("unknown mode of elicitation")
