"""A client of the older interface."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio

from tests.support.harness import WAIT_S, Served
from tests.support.wire.pipes import Pipe


class OldClient:
    """A client of the older interface: it checks nothing against today's schema."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._count = 0
        self.kept: list[dict[str, Any]] = []

    async def receive(self) -> dict[str, Any]:
        with anyio.fail_after(WAIT_S):
            message: dict[str, Any] = json.loads(await self._pipe.receive())
        return message

    async def send(self, message: Any) -> None:
        await self._pipe.send(json.dumps(message))

    async def ask(self, method: str, params: Any = None) -> dict[str, Any]:
        """Call a method and return the whole answer."""
        self._count += 1
        request = {"jsonrpc": "2.0", "id": self._count, "method": method}
        await self.send(request if params is None else {**request, "params": params})
        while (message := await self.receive()).get("id") != self._count or "method" in message:
            self.kept.append(message)
        return message

    async def call(self, method: str, params: Any = None) -> Any:
        answer = await self.ask(method, params)
        assert "error" not in answer, answer
        return answer["result"]

    async def until(
        self, method: str, answer: Callable[[dict[str, Any]], Any] | None = None
    ) -> list[dict[str, Any]]:
        """Collect messages up to one; `answer` gives the results of requests."""
        seen: list[dict[str, Any]] = []
        while not seen or seen[-1]["method"] != method:
            message = self.kept.pop(0) if self.kept else await self.receive()
            seen.append(message)
            if "id" in message:
                assert answer is not None, message
                result = answer(message)
                await self.send({"jsonrpc": "2.0", "id": message["id"], "result": result})
        return seen

    async def listen(self, **params: Any) -> dict[str, Any]:
        """Start a conversation and listen to it."""
        started: dict[str, Any] = await self.call("newConversation", params)
        wanted = {"conversationId": started["conversationId"], "experimentalRawEvents": False}
        assert set(await self.call("addConversationListener", wanted)) == {"subscriptionId"}
        return started


@asynccontextmanager
async def old_client(served: Served, **capabilities: Any) -> AsyncIterator[OldClient]:
    async with served.pipe() as pipe:
        client = OldClient(pipe)
        info = {"name": "old", "title": None, "version": "1"}
        await client.call("initialize", {"clientInfo": info, "capabilities": capabilities or None})
        await client.send({"method": "initialized"})
        yield client


def text(words: str) -> list[Any]:
    return [{"type": "text", "data": {"text": words}}]


def events(messages: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    """Return the events, without ids, in the order in which they came."""
    found = []
    for message in messages:
        if message["method"].startswith("codex/event/"):
            msg = dict(message["params"]["msg"])
            assert message["method"] == f"codex/event/{msg['type']}"
            found.append((msg.pop("type"), msg))
    return found
