"""A client without checks and transcripts, for tests with many clients and many events."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

Message = dict[str, Any]
OPEN_S = 60.0
"""The longest that a handshake may take: the machine may be busy."""


class LeanClient:
    """One connection that reads when it is told to; events are in `events`."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.events: list[Message] = []
        self._next_id = 0

    async def call(self, method: str, params: Message) -> Any:
        """Call a method and return its result; events before the answer are kept."""
        self._next_id += 1
        request = {"id": self._next_id, "method": method, "params": params}
        await self.socket.send(json.dumps(request))
        while True:
            message = json.loads(await self.socket.recv())
            if "method" in message:
                self.events.append(message)
            elif "error" in message:
                raise RuntimeError(f"{method}: {message['error']}")
            else:
                return message["result"]

    async def read(self, stop: Callable[[Message], bool]) -> Message:
        """Read events up to the first that fits."""
        while True:
            message: Message = json.loads(await self.socket.recv())
            self.events.append(message)
            if stop(message):
                return message

    async def turn(self, thread_id: str, text: str) -> None:
        """Run a turn to its end."""
        ends = self.ends
        user_input = [{"type": "text", "text": text}]
        await self.call("turn/start", {"threadId": thread_id, "input": user_input})
        while self.ends == ends:
            await self.read(is_end)

    @property
    def ends(self) -> int:
        """How many turns have ended."""
        return sum(map(is_end, self.events))


def is_end(message: Message) -> bool:
    """Whether a turn ended."""
    return bool(message.get("method") == "turn/completed")


@asynccontextmanager
async def lean_client(url: str, **options: Any) -> AsyncIterator[LeanClient]:
    """Connect and shake hands."""
    settings: dict[str, Any] = {"compression": None, "max_size": None, "proxy": None}
    settings |= {"open_timeout": OPEN_S, "ping_interval": None, **options}
    async with connect(url, **settings) as socket:
        client = LeanClient(socket)
        info = {"name": "lean", "version": "1"}
        capabilities = {"experimentalApi": True}
        await client.call("initialize", {"clientInfo": info, "capabilities": capabilities})
        yield client
