"""A conversation with an app-server on this machine, from its client's side.

It reads all the time, so that a server never waits for it; what it did not ask for it drops. It
answers no question of the server: those are for people.
Source: docs/receiver.md, "The app-server".
"""

import asyncio
import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import anyio.abc
from pydantic_core import from_json, to_json
from websockets.asyncio.client import ClientConnection, connect, unix_connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from app_server.clients.token_file import NoToken, token_headers
from app_server.http.loopback_address import is_this_machine
from protocol.errors import INTERNAL_ERROR, RpcError
from protocol.model import Json, JsonObject

CLIENT_NAME = "app-server-receiver"
MAX_MESSAGE_BYTES = 64 * 1024 * 1024
CLOSE_S = 1.0
PING_S = 20.0
"""Between pings, and for the pong; then the server counts as gone."""


class ConnectionLost(Exception):
    """The server has gone, or was never there. What it did of an open request is not known."""


def check_url(url: str) -> str:
    """Return a URL of an app-server on this machine.

    Raises:
        ValueError: it is of another machine, or no such URL; the text does not repeat it.
    """
    if url.startswith("unix://") and len(url) > len("unix://"):
        return url
    parts = urlsplit(url)
    if parts.scheme != "ws" or not is_this_machine(parts.hostname):
        raise ValueError("an app-server is reached by ws://127.0.0.1:PORT or unix://PATH alone")
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError("the URL of an app-server has a host and a port, and nothing else")
    return url


class AppConnection:
    """One connection, made by `connect_app`; it lives while `run` does."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._ids = itertools.count(1)
        self._answers: dict[int, asyncio.Future[JsonObject]] = {}
        self.is_open = True
        """Whether requests can be made."""
        self.server: JsonObject = {}
        """What `initialize` answered: `userAgent`, `codexHome` and more."""

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
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

    async def initialize(self) -> None:
        """Shake hands.

        Raises:
            RpcError: the server refuses.
            ConnectionLost
        """
        info = {"name": CLIENT_NAME, "title": "Receiver", "version": "1"}
        params = {"clientInfo": info, "capabilities": {"experimentalApi": True}}
        result = await self.call("initialize", params)
        if not isinstance(result, dict):
            raise ConnectionLost
        self.server = result
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
        answer = self._answers.get(call_id) if isinstance(call_id, int) else None
        if answer is not None and not answer.done():
            answer.set_result(message)

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


async def connect_app(url: str, token_file: Path | None = None) -> AppConnection:
    """Connect, without shaking hands; callers set the deadline.

    Raises:
        ValueError: the URL is of another machine, or there is no token in the file.
        ConnectionLost: nobody answers there.
    """
    check_url(url)
    try:
        headers = await token_headers(token_file)
    except NoToken as exc:
        raise ValueError(str(exc)) from exc
    try:
        return AppConnection(await _connect(url, headers))
    except (OSError, WebSocketException) as exc:
        raise ConnectionLost from exc


def _connect(url: str, headers: Mapping[str, str]) -> connect:
    if url.startswith("unix://"):
        return unix_connect(
            url.removeprefix("unix://"),
            compression=None,
            max_size=MAX_MESSAGE_BYTES,
            additional_headers=headers,
            open_timeout=None,
            close_timeout=CLOSE_S,
        )
    return connect(
        url,
        proxy=None,
        compression=None,
        max_size=MAX_MESSAGE_BYTES,
        additional_headers=headers,
        open_timeout=None,
        close_timeout=CLOSE_S,
        ping_interval=PING_S,
        ping_timeout=PING_S,
    )
