"""Methods of the app-server beside MCP: a second conversation with it, passed through.

Source: docs/older_interface.md; docs/mcp_server.md, "Methods of the app-server".
"""

import itertools
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio
import anyio.abc
from pydantic_core import from_json, to_json

from app_server.rpc.message_stream import MessageStream
from app_server.rpc.older_interface.requests import TRANSLATIONS
from app_server.rpc.older_interface.stream import OWN
from protocol.contract.methods import METHODS
from protocol.model import Json, JsonObject

FORWARDED = frozenset({*TRANSLATIONS, *OWN, *METHODS} - {"initialize"})
"""Methods of the older interface and of today's wire; none is a method of MCP."""

RESOLVED = "serverRequest/resolved"

PREFIX = "older:"
"""With what ids of questions begin that the client is asked by the second conversation."""

MAX_QUESTIONS = 1024
"""Bound on questions that wait for the client's answer; of more the oldest are forgotten."""

HELLO = "hello"
"""The id of the requests that it begins with."""


class OlderSide:
    """The second conversation, from the first method that needs it on."""

    def __init__(
        self,
        open_conversation: Callable[[], Awaitable[MessageStream]],
        send: Callable[[str], Awaitable[None]],
        tasks: anyio.abc.TaskGroup,
    ) -> None:
        """`send` writes to the MCP client; `tasks` owns the reading."""
        self._open = open_conversation
        self._send = send
        self._tasks = tasks
        self._stream: MessageStream | None = None
        self._opening = anyio.Lock()
        self._numbers = itertools.count(1)
        self._questions: OrderedDict[str, Json] = OrderedDict()
        """The app-server's ids of what the client was asked, by the ids that it was given."""

    async def forward(self, text: str, client: JsonObject) -> None:
        """Pass a request on; its answer goes to the client. `client` is its `clientInfo`."""
        async with self._opening:
            if self._stream is None:
                self._stream = await self._open()
                hello = {"clientInfo": client, "capabilities": {"experimentalApi": True}}
                await self._send_message({"id": HELLO, "method": "initialize", "params": hello})
                await self._send_message({"method": "initialized"})
                # So that all of it has the older form.
                await self._send_message({"id": HELLO, "method": "getUserAgent"})
                self._tasks.start_soon(self._read, self._stream)
        await self._stream.send(text)

    async def answered(self, question_id: Json, message: JsonObject) -> bool:
        """Pass the answer to a question on; False if it is none of ours."""
        if not isinstance(question_id, str) or question_id not in self._questions:
            return False
        await self._send_message({**message, "id": self._questions.pop(question_id)})
        return True

    async def aclose(self) -> None:
        """End the conversation, if there is one."""
        if self._stream is not None:
            await self._stream.aclose()

    async def _read(self, stream: MessageStream) -> None:
        with suppress(anyio.EndOfStream):
            while True:
                message = from_json(await stream.receive())
                if message.get("id") == HELLO and "method" not in message:
                    continue
                await self._send(to_json(self._shown(message)).decode())

    def _shown(self, message: JsonObject) -> JsonObject:
        """Give a question an id of our own, here and where it is said that it was settled."""
        if "method" in message and "id" in message:
            own_id = f"{PREFIX}{next(self._numbers)}"
            self._questions[own_id] = message["id"]
            if len(self._questions) > MAX_QUESTIONS:
                self._questions.popitem(last=False)
            return {**message, "id": own_id}
        if message.get("method") == RESOLVED:
            params = message["params"]
            for own_id, question_id in self._questions.items():
                if question_id == params["requestId"]:
                    del self._questions[own_id]
                    return {**message, "params": {**params, "requestId": own_id}}
        return message

    async def _send_message(self, message: JsonObject) -> None:
        assert self._stream is not None
        await self._stream.send(to_json({"jsonrpc": "2.0", **message}).decode())
