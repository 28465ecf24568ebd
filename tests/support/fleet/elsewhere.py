"""A way to put clients, as they are, on a node that does not own their threads.

A listener in front of one node begins each thread of a client at another one, by turns, with the
client's own handshake, and has the client follow it at the node that it asks. All else passes.
"""

import asyncio
import itertools
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

MAX_BYTES = 256 * 1024 * 1024
OWN = "elsewhere-"
"""How ids of requests begin that the client has not made."""


class Elsewhere:
    """The listener."""

    def __init__(self, asked: str, owners: Sequence[str]) -> None:
        """Name the node that is asked, and those where threads begin."""
        self._asked = asked
        self._owners = itertools.cycle(owners)
        self.begun: list[str] = []
        """Ids of the threads that clients have begun."""

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        """Take clients while the context lasts; gives the URL for them."""
        async with serve(self._serve, "127.0.0.1", 0, max_size=MAX_BYTES) as server:
            yield f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"

    async def _serve(self, client: ServerConnection) -> None:
        async with (
            connect(self._asked, proxy=None, max_size=MAX_BYTES) as node,
            AsyncExitStack() as owners,
        ):
            passing = asyncio.create_task(_pass_back(node, client))
            try:
                with suppress(ConnectionClosed):
                    await self._pass(client, node, owners)
            finally:
                passing.cancel()

    async def _pass(
        self, client: ServerConnection, node: ClientConnection, owners: AsyncExitStack
    ) -> None:
        hello: dict[str, Any] = {}
        numbers = itertools.count()
        async for text in client:
            message = json.loads(text)
            method = message.get("method") if isinstance(message, dict) else None
            if method == "initialize":
                hello = message
            if method != "thread/start" or message["params"].get("ephemeral"):
                await node.send(text)
                continue
            owner = await owners.enter_async_context(
                connect(next(self._owners), proxy=None, max_size=MAX_BYTES)
            )
            await _ask(owner, hello)
            answer = await _ask(owner, message)
            if "result" in answer:
                thread_id = answer["result"]["thread"]["id"]
                self.begun.append(thread_id)
                request_id = f"{OWN}{next(numbers)}"
                resume = {"threadId": thread_id, "excludeTurns": True}
                await node.send(
                    json.dumps({"id": request_id, "method": "thread/resume", "params": resume})
                )
            await client.send(json.dumps(answer))


async def _ask(node: ClientConnection, message: dict[str, Any]) -> dict[str, Any]:
    await node.send(json.dumps(message))
    while True:
        answer: dict[str, Any] = json.loads(await node.recv())
        if "method" not in answer and answer["id"] == message["id"]:
            return answer


async def _pass_back(node: ClientConnection, client: ServerConnection) -> None:
    with suppress(ConnectionClosed):
        async for text in node:
            if f'"id":"{OWN}' not in str(text)[:100]:
                await client.send(text)
        await client.close()


def program(folder: Path, url: str) -> Path:
    """Write a program that passes its standard input and output on to a listener."""
    path = folder / "app-server"
    path.write_text(f"#!/bin/sh\nexec '{sys.executable}' -m {__name__} {url}\n")
    path.chmod(0o755)
    return path


async def _pass_pipes(url: str) -> None:
    reader = asyncio.StreamReader(limit=MAX_BYTES)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async with connect(url, proxy=None, max_size=MAX_BYTES) as socket:

        async def write() -> None:
            async for text in socket:
                sys.stdout.write(str(text) + "\n")
                sys.stdout.flush()

        writing = asyncio.create_task(write())
        while line := await reader.readline():
            await socket.send(line.decode())
        writing.cancel()


if __name__ == "__main__":
    asyncio.run(_pass_pipes(sys.argv[1]))
