"""Methods of the app-server beside MCP: a second conversation with it, passed through.

Source: docs/older_interface.md; docs/mcp_server.md, "Methods of the app-server".
"""

import itertools
from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio
import anyio.abc
from pydantic_core import from_json, to_json

from app_server.older_interface.requests import TRANSLATIONS
from app_server.older_interface.stream import OWN
from app_server.rpc.connection import MessageStream
from protocol.methods import METHODS
from protocol.model import Json, JsonObject

FORWARDED = frozenset({*TRANSLATIONS, *OWN, *METHODS} - {"initialize"})
"""Methods of the older interface and of today's wire; none is a method of MCP."""

PREFIX = "older:"
"""With what ids of questions begin that the client is asked by the second conversation."""

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
        self._questions: dict[str, Json] = {}

    async def forward(self, text: str, client: JsonObject) -> None:
        """Pass a request on; its answer goes to the client. `client` is its `clientInfo`."""
        async with self._opening:
            if self._stream is None:
                self._stream = await self._open()
                hello = {"clientInfo": client, "capabilities": {"experimentalApi": True}}
                await self._say({"id": HELLO, "method": "initialize", "params": hello})
                await self._say({"method": "initialized"})
                # So that all of it has the older form.
                await self._say({"id": HELLO, "method": "getUserAgent"})
                self._tasks.start_soon(self._read, self._stream)
        await self._stream.send(text)

    async def answered(self, question_id: Json, message: JsonObject) -> bool:
        """Pass the answer to a question on; False if it is none of ours."""
        if not isinstance(question_id, str) or question_id not in self._questions:
            return False
        await self._say({**message, "id": self._questions.pop(question_id)})
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
                if "method" in message and "id" in message:
                    own_id = f"{PREFIX}{next(self._numbers)}"
                    self._questions[own_id] = message["id"]
                    message = {**message, "id": own_id}
                await self._send(to_json(message).decode())

    async def _say(self, message: JsonObject) -> None:
        assert self._stream is not None
        await self._stream.send(to_json({"jsonrpc": "2.0", **message}).decode())
