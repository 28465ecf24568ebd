"""Clients that run turns on any node of a fleet, and remember what they were told."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from tests.support.fleet.nodes import Fleet
from tests.support.harness import WAIT_S, WireClient, WireError

PAUSE_S = 0.1
"""Between tries of a client that was refused."""
LOST = (OSError, ConnectionClosed, InvalidHandshake, EOFError, anyio.EndOfStream)
TURNS = 4
"""Turns after which a client goes to another node, and finds its thread there."""


@dataclass
class Told:
    """What the server has answered, by thread."""

    accepted: dict[str, list[str]] = field(default_factory=dict)
    """Texts whose `turn/start` was answered, by the thread, in their order."""
    tried: dict[str, list[str]] = field(default_factory=dict)
    """Texts that were sent, answered or not."""
    ended: dict[str, str] = field(default_factory=dict)
    """Statuses of `turn/completed`, by the id of the turn."""
    wrong: list[str] = field(default_factory=list)
    """Errors that no client should get."""
    progress: int = 0
    """Turns that were seen to their end."""
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def end(self, turn: Any) -> None:
        """Take note of the end of a turn."""
        before = self.ended.setdefault(turn["id"], turn["status"])
        if before != turn["status"]:
            self.wrong.append(f"turn {turn['id']} ended as {before} and as {turn['status']}")
        self.progress += 1
        self.news.set()
        self.news = asyncio.Event()

    async def more_turns(self, count: int) -> None:
        """Wait until so many more turns have ended."""
        wanted = self.progress + count
        with anyio.fail_after(WAIT_S):
            while self.progress < wanted:
                await self.news.wait()


@asynccontextmanager
async def load_on(fleet: Fleet, clients: int) -> AsyncIterator[Told]:
    """Have clients work while the context lasts; each has a thread, and goes to any node."""
    told, over = Told(), asyncio.Event()
    working = [
        asyncio.create_task(_Client(fleet, number, told, over).work()) for number in range(clients)
    ]
    try:
        yield told
        over.set()
        await asyncio.gather(*working)
    finally:
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)


class _Client:
    def __init__(self, fleet: Fleet, number: int, told: Told, over: asyncio.Event) -> None:
        self._fleet = fleet
        self._number = number
        self._told = told
        self._over = over
        self._thread_id: str | None = None
        self._count = 0
        self._finished_last = False

    async def work(self) -> None:
        """Run turns until it is over, and one more to its end then."""
        node = self._number
        while not self._finished_last:
            try:
                running = self._fleet.nodes[node % len(self._fleet.nodes)].running
                if running is not None:
                    async with running.client() as client:
                        await self._converse(client)
            except WireError as exc:
                if not (exc.data.get("retriable") or exc.data["code"] == "threadBusy"):
                    self._told.wrong.append(f"{exc.message}: {exc.data}")
                    return
            except LOST:
                pass
            node += 1
            await asyncio.sleep(PAUSE_S)

    async def _converse(self, client: WireClient) -> None:
        if self._thread_id is None:
            self._thread_id = (await client.call("thread/start", {}))["thread"]["id"]
            self._told.accepted[self._thread_id] = []
            self._told.tried[self._thread_id] = []
        else:
            await client.call("thread/resume", {"threadId": self._thread_id})
        for _ in range(TURNS):
            is_last = self._over.is_set()
            if not await self._turn(client, self._thread_id):
                return
            self._finished_last = is_last
            if is_last:
                return

    async def _turn(self, client: WireClient, thread_id: str) -> bool:
        """Run a turn; False: the thread was closed before its end."""
        self._count += 1
        text = f"client {self._number} input {self._count}."
        self._told.tried[thread_id].append(text)
        params = {"threadId": thread_id, "input": [{"type": "text", "text": text}]}
        try:
            turn_id = (await client.call("turn/start", params))["turn"]["id"]
        except WireError as exc:
            if exc.data["code"] != "threadNotFound":
                raise
            # It was closed since it was resumed, as its node had lost it.
            return False
        self._told.accepted[thread_id].append(text)
        while True:
            message = await client.receive()
            if message.get("method") == "thread/closed":
                return False
            if message.get("method") != "turn/completed":
                continue
            self._told.end(message["params"]["turn"])
            if message["params"]["turn"]["id"] == turn_id:
                return True
