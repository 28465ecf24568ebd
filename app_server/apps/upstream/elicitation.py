"""The endpoint's questions to a user, brought to the one client whose call is running.

Source: docs/apps.md, "Questions of the endpoint"; MCP 2025-06-18, "Elicitation".
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import get_args

from app_server.apps.routes.ports import DownstreamPeer, ElicitationMode
from app_server.mcp_wire.errors import BadQuestion
from protocol.model import JsonObject

OPENAI_FORM: ElicitationMode = "openai/form"
METHODS = ("elicitation/create", OPENAI_FORM)
"""Requests of the endpoint that are questions."""


class ElicitationBridge:
    """Knows who may be asked now: the client whose call holds the session, or nobody."""

    def __init__(self) -> None:
        self._peer: DownstreamPeer | None = None

    @contextmanager
    def held_by(self, peer: DownstreamPeer) -> Iterator[None]:
        """Bring questions to a client while the context lasts."""
        assert self._peer is None, "a session has one call at a time"
        self._peer = peer
        try:
            yield
        finally:
            self._peer = None

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        """Bring a question of the endpoint and return the answer as it came.

        It is `cancel` if nobody is there; see also DownstreamPeer.

        Raises:
            BadQuestion: the mode is unknown, or `_meta` is no object.
        """
        if "_meta" in params and not isinstance(params["_meta"], dict):
            raise BadQuestion("_meta must be an object")
        if method == OPENAI_FORM:
            params = {**params, "mode": OPENAI_FORM}
        if params.get("mode", "form") not in get_args(ElicitationMode):
            raise BadQuestion("unknown mode of elicitation")
        return {"action": "cancel"} if self._peer is None else await self._peer.elicit(params)
