"""A conversation with an app-server from the client's side, with any number of calls at a time.

It reads all the time, so that a server never waits for it; what it did not ask for it drops. It
answers no question of the server: those are for people.
Source: docs/receiver.md, "The app-server".
"""

import asyncio
import itertools
from collections.abc import Callable

import anyio
import anyio.abc
from pydantic_core import from_json, to_json
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from protocol.jsonrpc.errors import INTERNAL_ERROR, RpcError
from protocol.model import Json, JsonObject


class ConnectionLost(ConnectionError):
    """Lost connection; whether an open request took effect is not known."""

    def __init__(self) -> None:
        super().__init__("the connection has ended")


class AppConnection:
    """One connection; it lives while `run` does."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._ids = itertools.count(1)
        self._answers: dict[int | str, asyncio.Future[JsonObject]] = {}
        self.is_open = True
        """Whether requests can be made."""

    async def run(
        self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Read until the connection ends; `call` works once this has started."""
        task_status.started()
        try:
            while True:
                self._take(from_json(await self._socket.recv()))
        except (ConnectionClosed, ValueError):
            # A server that sends no JSON is none.
            pass
        finally:
            self._end()
            with anyio.CancelScope(shield=True):
                await self._socket.close()

    async def initialize(self, **info: str) -> None:
        """Shake hands, with the experimental members; `info` is the `clientInfo`.

        Raises:
            RpcError: the server refuses.
            ConnectionLost
        """
        params = {"clientInfo": info, "capabilities": {"experimentalApi": True}}
        if not isinstance(await self.call("initialize", params), dict):
            # Somebody else's server.
            raise ConnectionLost
        await self._send({"method": "initialized"})

    async def call(
        self, method: str, params: JsonObject, when_sent: Callable[[], None] = lambda: None
    ) -> Json:
        """Call a method and return its result; callers set the deadline.

        Raises:
            RpcError: the server answered with an error.
            ConnectionLost: it did not answer.
        """
        if not self.is_open:
            raise ConnectionLost
        call_id = next(self._ids)
        answer: asyncio.Future[JsonObject] = asyncio.get_running_loop().create_future()
        self._answers[call_id] = answer
        try:
            await self._send({"id": call_id, "method": method, "params": params})
            when_sent()
            message = await answer
        finally:
            del self._answers[call_id]
        error = message.get("error")
        if isinstance(error, dict):
            code = error.get("code")
            raise RpcError(
                code if isinstance(code, int) else INTERNAL_ERROR,
                str(error.get("message")),
                data=error.get("data"),
            )
        return message.get("result")

    async def aclose(self) -> None:
        """Close the connection; calls that wait fail. Twice is harmless."""
        self._end()
        await self._socket.close()

    def _take(self, message: Json) -> None:
        if not isinstance(message, dict) or "method" in message:
            return
        call_id = message.get("id")
        if isinstance(call_id, int):
            self._settle(call_id, message)

    def _settle(self, key: int | str, value: JsonObject) -> None:
        answer = self._answers.get(key)
        if answer is not None and not answer.done():
            answer.set_result(value)

    def _end(self) -> None:
        self.is_open = False
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(ConnectionLost())

    async def _send(self, message: JsonObject) -> None:
        try:
            await self._socket.send(to_json(message), text=True)
        except ConnectionClosed as exc:
            raise ConnectionLost from exc
