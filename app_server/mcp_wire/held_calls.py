"""Calls that go on while their client is asked, over as many requests as that takes.

A server without sessions cannot ask in the middle of a request: it ends the request with what it
wants to know, and the client makes the call again with the answers.
Source: MCP 2026-07-28, "Multi Round-Trip Requests"; docs/mcp_server.md, "Without a handshake".
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import anyio
from anyio.abc import TaskGroup
from pydantic_core import to_json

from app_server.mcp_wire.errors import PeerError
from app_server.mcp_wire.revisions import INPUT_REQUIRED
from protocol.jsonrpc.errors import INTERNAL_ERROR, INVALID_PARAMS
from protocol.model import Json, JsonObject

logger = logging.getLogger(__name__)

HELD_S = 1800.0
"""For a client to make a call again that has asked it something; then the call is cancelled."""

MAX_HELD = 64
"""Calls that wait for that; one more is refused."""

STATE_BYTES = 24
"""Random ones, from the system, that name a call."""

AGAIN = ("inputResponses", "requestState")
"""What only a call that is made again has."""

_CALL_MEMBERS = ("name", "uri", "arguments")
"""What a call that is made again has in common with the first."""

Work: TypeAlias = Callable[["HeldCall"], Awaitable[JsonObject]]
"""Does what was called; it may ask."""


@dataclass(slots=True)
class HeldCall:
    """One call, from its first request to its result."""

    asks_forms: bool
    """Whether the client can be asked to fill in a form, and to follow a link."""
    asks_links: bool
    _name: str = field(default_factory=lambda: secrets.token_urlsafe(STATE_BYTES))
    _rounds: int = 0
    """Times that the client was asked; each has a state of its own."""
    _scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    _open: dict[str, tuple[JsonObject, asyncio.Future[JsonObject]]] = field(default_factory=dict)
    _asked: int = 0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _result: JsonObject | PeerError | None = None

    @property
    def _state(self) -> str:
        return f"{self._name}.{self._rounds}"

    def can_be_asked(self, params: JsonObject) -> bool:
        """Whether the client takes such a question."""
        return self.asks_links if params.get("mode") == "url" else self.asks_forms

    async def elicit(self, params: JsonObject) -> JsonObject:
        """Ask the client, and return its answer, unchecked; cancelling withdraws the question."""
        params = {name: value for name, value in params.items() if name != "elicitationId"}
        self._asked += 1
        key = f"question-{self._asked}"
        answered: asyncio.Future[JsonObject] = asyncio.get_running_loop().create_future()
        self._open[key] = {"method": "elicitation/create", "params": params}, answered
        self._changed.set()
        try:
            return await answered
        finally:
            self._open.pop(key, None)

    def _take(self, responses: JsonObject) -> None:
        for key, response in responses.items():
            found = self._open.pop(key, None)
            if found is not None and not found[1].done():
                found[1].set_result(response if isinstance(response, dict) else {})

    async def _round(self) -> JsonObject:
        """Wait for the result, or for a question; a client that goes away cancels the call."""
        self._scope.deadline = float("inf")
        try:
            while self._result is None and not self._open:
                self._changed.clear()
                await self._changed.wait()
        except anyio.get_cancelled_exc_class():
            self._scope.cancel()
            raise
        if isinstance(self._result, PeerError):
            raise self._result
        if self._result is not None:
            return self._result
        self._scope.deadline = anyio.current_time() + HELD_S
        self._rounds += 1
        asked = {key: request for key, (request, _) in self._open.items()}
        return {"resultType": INPUT_REQUIRED, "inputRequests": asked, "requestState": self._state}


class HeldCalls:
    """The calls of one server; each client knows the names of its own alone."""

    def __init__(self, tasks: TaskGroup) -> None:
        """Run calls in `tasks`."""
        self._tasks = tasks
        self._calls: dict[str, tuple[bytes, HeldCall]] = {}

    async def call(self, params: JsonObject, capabilities: Json, work: Work) -> JsonObject:
        """Begin a call, or go on with the one that `requestState` names; gives its result.

        Or what is asked. `params` are those of the request, `capabilities` the client's.

        Raises:
            PeerError: -32602, there is no such call; -32603, too many wait; or what `work` raised.
        """
        about = _about(params)
        state = params.get("requestState")
        if state is None:
            if len(self._calls) >= MAX_HELD:
                raise PeerError(INTERNAL_ERROR, f"more than {MAX_HELD} calls wait")
            held = HeldCall(*_can_be_asked(capabilities))
            self._calls[held._name] = about, held
            self._tasks.start_soon(self._run, held, work)
            return await held._round()
        named = state.rpartition(".")[0] if isinstance(state, str) else ""
        found = self._calls.get(named)
        responses = params.get("inputResponses")
        if (
            found is None
            or (found[0], found[1]._state) != (about, state)
            or not isinstance(responses, dict)
        ):
            reason: JsonObject = {"reason": "invalid_request_state"}
            raise PeerError(INVALID_PARAMS, "Invalid or expired requestState", reason)
        held = found[1]
        held._take(responses)
        return await held._round()

    async def _run(self, held: HeldCall, work: Work) -> None:
        try:
            with held._scope:
                held._result = await work(held)
            if held._result is None:
                held._result = PeerError(INTERNAL_ERROR, "the call was cancelled")
        except PeerError as exc:
            held._result = exc
        except Exception:
            logger.exception("a call that may ask its client broke")
            held._result = PeerError(INTERNAL_ERROR, "Internal error")
        finally:
            del self._calls[held._name]
            held._changed.set()


def _about(params: JsonObject) -> bytes:
    return to_json([params.get(name) for name in _CALL_MEMBERS], inf_nan_mode="null")


def _can_be_asked(capabilities: Json) -> tuple[bool, bool]:
    """Whether a client can be asked for forms, and to follow links; the bare word means forms."""
    found = capabilities.get("elicitation") if isinstance(capabilities, dict) else None
    if not isinstance(found, dict):
        return False, False
    return "form" in found or "url" not in found, "url" in found
