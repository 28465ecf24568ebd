"""A lean client that has many requests in flight: one reader task, a future for each answer."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

from pydantic_core import from_json, to_json
from websockets.asyncio.client import ClientConnection, connect, unix_connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI

from app_server.clients.token_file import TokenWanted, token_headers
from protocol.errors import RpcError
from protocol.model import Json, JsonObject

UNIX = "unix://"
OPEN_S = 60.0
"""For the opening of a connection: a machine that is measured may be busy."""


class Conversation:
    """One connection; calls may overlap. Events other than the ends of turns are dropped."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._next_id = 0
        self._answers: dict[int, asyncio.Future[JsonObject]] = {}
        self._turns: dict[str, asyncio.Future[JsonObject]] = {}

    async def call(self, method: str, params: JsonObject) -> JsonObject:
        """Call a method and return its result.

        Raises:
            RpcError: the server answered with an error.
            ConnectionError: the connection has ended.
        """
        self._next_id += 1
        answered = self._answers[self._next_id] = asyncio.get_running_loop().create_future()
        await self._send({"id": self._next_id, "method": method, "params": params})
        answer = await answered
        error = answer.get("error")
        if error is not None:
            raise RpcError(error["code"], f"{method}: {error['message']}", data=error.get("data"))
        result: JsonObject = answer["result"]
        return result

    async def turn(self, thread_id: str, text: str) -> None:
        """Run a turn of a thread to its end.

        Raises:
            RpcError: the server refused it.
            ConnectionError: the connection has ended, or the turn has not completed well.
        """
        ended = self._turns[thread_id] = asyncio.get_running_loop().create_future()
        given = [{"type": "text", "text": text}]
        await self.call("turn/start", {"threadId": thread_id, "input": given})
        turn = (await ended)["turn"]
        if turn["status"] != "completed":
            raise ConnectionError(f"a turn ended as {turn['status']}: {turn.get('error')}")

    async def read(self) -> None:
        """Give every answer to its call, until the connection ends."""
        try:
            async for text in self._socket:
                self._take(from_json(text))
        except ConnectionClosed:
            pass
        finally:
            for waiting in (*self._answers.values(), *self._turns.values()):
                if not waiting.done():
                    waiting.set_exception(ConnectionError("the connection has ended"))

    def _take(self, message: JsonObject) -> None:
        waiting: asyncio.Future[JsonObject] | None = None
        if "method" not in message:
            waiting, value = self._answers.pop(message["id"], None), message
        elif message["method"] == "turn/completed":
            value = message["params"]
            waiting = self._turns.pop(value["threadId"], None)
        if waiting is not None and not waiting.done():
            waiting.set_result(value)

    async def _send(self, message: Json) -> None:
        try:
            await self._socket.send(to_json(message), text=True)
        except ConnectionClosed as exc:
            raise ConnectionError("the connection has ended") from exc


@asynccontextmanager
async def converse(url: str, token_file: Path | None = None) -> AsyncIterator[Conversation]:
    """Connect to an app-server and shake hands, with its experimental members.

    Raises:
        ValueError: this is no `ws://` or `unix://` URL.
        OSError: nobody listens there, or no app-server, or there is no token in the file.
        RpcError: the server refuses the handshake.
    """
    headers = await token_headers(token_file)
    options: dict[str, Any] = {
        "compression": None,
        "max_size": None,
        "open_timeout": OPEN_S,
        "additional_headers": headers,
    }
    try:
        if url.startswith(UNIX):
            socket = await unix_connect(url.removeprefix(UNIX), **options)
        else:
            socket = await connect(url, proxy=None, **options)
    except InvalidURI as exc:
        raise ValueError(str(exc)) from exc
    except InvalidStatus as exc:
        if exc.response.status_code == HTTPStatus.UNAUTHORIZED:
            raise TokenWanted(url, token_file) from exc
        raise ConnectionError(f"{url}: {exc}") from exc
    except InvalidHandshake as exc:
        raise ConnectionError(f"{url}: {exc}") from exc
    async with socket:
        conversation = Conversation(socket)
        reader = asyncio.create_task(conversation.read())
        try:
            await conversation.call(
                "initialize",
                {
                    "clientInfo": {"name": "bench", "version": "1"},
                    "capabilities": {"experimentalApi": True},
                },
            )
            await socket.send('{"method":"initialized"}')
            yield conversation
        finally:
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reader
