"""One of our requests over HTTP, from its POST to the end of its answer, and how it is given up.

To MCP a closed connection does not cancel a request, so the SDK leaves that of a cancelled one
open, for as long as the server likes, and takes its stream up again. This ends it on our side, once
the server has been told.
Source: MCP 2025-06-18, "Cancellation".
"""

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TypeVar

import anyio
import httpx2

from protocol.model import Json, JsonObject

Result = TypeVar("Result")

CANCELLED = "notifications/cancelled"


class GivenUp(httpx2.StreamError):
    """Nobody waits for this answer any more."""


class Exchange:
    """A request and its answer; every wait of it goes through `wait_for`."""

    def __init__(self) -> None:
        self.given_up = False
        self._scope: anyio.CancelScope | None = None

    async def wait_for(self, step: Callable[[], Awaitable[Result]]) -> Result:
        """Wait for one step of the exchange.

        Raises:
            GivenUp: `give_up` came before its end.
        """
        if not self.given_up:
            with anyio.CancelScope() as self._scope:
                return await step()
        raise GivenUp("the request was given up")

    def give_up(self) -> None:
        """End the wait that is under way, and let no other begin."""
        self.given_up = True
        if self._scope is not None:
            self._scope.cancel()


_current: ContextVar[Exchange | None] = ContextVar("_current", default=None)
"""The SDK serves a request in a task of its own, also when it takes its stream up again."""


class Exchanges:
    """Those of one connection that are under way, by JSON-RPC id."""

    def __init__(self) -> None:
        self._open: dict[Json, Exchange] = {}

    def begin(self, message: JsonObject) -> Exchange:
        """Return the exchange of what is about to be sent.

        `message` is what a POST carries; without a method it is that of this task.
        """
        if "method" not in message:
            return _current.get() or Exchange()
        exchange = Exchange()
        if "id" in message:
            _current.set(exchange)
            self._open[message["id"]] = exchange
        return exchange

    def end(self, message: JsonObject) -> None:
        """Forget the exchange of a request, and give up the one that a notification cancels."""
        if "method" in message:
            self._open.pop(message.get("id"), None)
        params = message.get("params")
        if message.get("method") == CANCELLED and isinstance(params, dict):
            exchange = self._open.pop(params.get("requestId"), None)
            if exchange is not None:
                exchange.give_up()
