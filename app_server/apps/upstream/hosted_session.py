"""One MCP session with the hosted endpoint, from the handshake to the DELETE.

Source: docs/apps.md, "The hosted endpoint", "Questions of the endpoint"; MCP 2025-06-18.
"""

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import get_args

import anyio
import httpx2
from anyio.abc import TaskStatus

from app_server.apps.routes.backing import DownstreamPeer, ElicitationMode
from app_server.apps.upstream.endpoint import UpstreamTarget
from app_server.mcp_wire.errors import (
    BadQuestion,
    PeerError,
    ProgressCallback,
    RequestRefused,
    RequestTimedOut,
    TransportClosed,
)
from app_server.mcp_wire.handshake import Handshake
from app_server.mcp_wire.http.refusals import UNREACHABLE
from app_server.mcp_wire.http.transport import open_http
from app_server.mcp_wire.json_rpc_client import Caller, JsonRpcClient
from app_server.runtime.exception_groups import only_member
from protocol.jsonrpc.errors import INTERNAL_ERROR, METHOD_NOT_FOUND
from protocol.model import JsonObject
from protocol.server.lifecycle import PROTOCOL_VERSION

logger = logging.getLogger(__name__)

CLIENT_INFO = {"name": "codex-apps", "title": "Codex Apps", "version": PROTOCOL_VERSION}

OPENAI_FORM: ElicitationMode = "openai/form"
METHODS = ("elicitation/create", OPENAI_FORM)
"""Requests of the endpoint that are questions."""

INTRODUCTION_S = 30.0
"""For the answer to `initialize`."""

MAX_RESPONSE_BYTES = 16 * 1024 * 1024
"""Of one response to a POST, a stream of events as a whole."""


class ElicitationBridge:
    """The route of elicitations to the client whose call holds the session, if any."""

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


class HostedSession:
    """A LiveSession over HTTP. It has no time limit but that of the handshake."""

    def __init__(self, rpc: JsonRpcClient, bridge: ElicitationBridge, *, elicitation: bool) -> None:
        self._rpc = rpc
        self._bridge = bridge
        self._elicitation = elicitation
        asked: JsonObject = {"elicitation": {"form": {}, "url": {}}} if elicitation else {}
        capabilities: JsonObject = {**asked, "extensions": {OPENAI_FORM: {}}}
        self._handshake = Handshake(rpc, CLIENT_INFO, capabilities)
        self._is_broken = False

    @property
    def is_broken(self) -> bool:
        """Whether HTTP has failed, or the endpoint has ended the session."""
        return self._is_broken

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Read messages until cancelled; requests can be made once this has started."""
        await self._rpc.run(self._answer, _ignore, task_status=task_status)

    async def introduce(self) -> None:
        """Shake hands.

        Raises:
            PeerError: the endpoint does not, or not in time.
        """
        try:
            await self._handshake.run(INTRODUCTION_S)
        except (RequestTimedOut, TransportClosed) as exc:
            raise PeerError(UNREACHABLE, str(exc)) from exc

    async def request(
        self, method: str, params: JsonObject, *, on_progress: ProgressCallback | None = None
    ) -> JsonObject:
        """Call a method; see UpstreamSession."""
        try:
            return await self._rpc.call(
                method, params, headers=self._handshake.headers, on_progress=on_progress
            )
        except PeerError as exc:
            # It stands for HTTP that failed, or for a session that is over.
            self._is_broken |= exc.code == UNREACHABLE
            raise
        except TransportClosed as exc:
            self._is_broken = True
            raise PeerError(UNREACHABLE, str(exc)) from exc

    async def _answer(self, method: str, params: JsonObject, caller: Caller | None) -> JsonObject:
        if method == "ping":
            return {}
        if method in METHODS and (self._elicitation or method == OPENAI_FORM):
            return await self._bridge.ask(method, params)
        raise RequestRefused(METHOD_NOT_FOUND, f"Method not found: {method}")


def _ignore(method: str, params: JsonObject, caller: Caller | None) -> None:
    logger.debug("the endpoint says %s", method)


@asynccontextmanager
async def open_session(
    target: UpstreamTarget, bridge: ElicitationBridge
) -> AsyncIterator[HostedSession]:
    """Open a session whose elicitations go to `bridge`; leaving ends it with a DELETE.

    Raises:
        PeerError: it cannot be opened.
    """
    headers = {name: value.get_secret_value() for name, value in target.headers.items()}
    credentials = () if target.tokens is None else (target.tokens,)
    http = open_http(target.url, headers, *credentials, post_limit_bytes=MAX_RESPONSE_BYTES)
    try:
        async with http as streams, anyio.create_task_group() as tasks:
            session = HostedSession(JsonRpcClient(*streams), bridge, elicitation=target.elicitation)
            await tasks.start(session.run)
            await session.introduce()
            yield session
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        # Task groups wrap whatever leaves them, also what the caller has raised.
        raise only_member(group) from None
    except (httpx2.InvalidURL, ValueError) as exc:
        raise PeerError(INTERNAL_ERROR, str(exc)) from exc
