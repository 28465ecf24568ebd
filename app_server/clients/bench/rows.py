"""Rows of a bench: one step of each, on one server, and the client that makes it.

Every step is made of calls that any client of an app-server makes.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from app_server.clients.app_connection import AppConnection
from app_server.peer.address import HandshakeFailed, ServerAddress
from protocol.jsonrpc.errors import RpcError
from protocol.model import Json, JsonObject

LISTED = 10
"""Threads with a turn each, of which lists are made."""

IN_FLIGHT = 100

DELTAS = 2000

PRINTED_MB = 100

SIGNAL: JsonObject = {
    "type": "message",
    "role": "developer",
    "content": [{"type": "input_text", "text": "a signal"}],
}

OPEN_S = 60.0
"""For the opening of a connection: a machine that is measured may be busy."""


class Conversation(AppConnection):
    """One connection; calls may overlap. Events other than the ends of turns are dropped."""

    async def call(
        self, method: str, params: JsonObject, when_sent: Callable[[], None] = lambda: None
    ) -> Json:
        """Call a method and return its result; errors name the method. See AppConnection."""
        try:
            return await super().call(method, params, when_sent)
        except RpcError as exc:
            raise RpcError(exc.code, f"{method}: {exc.message}", data=exc.data) from exc

    async def turn(self, thread_id: str, text: str) -> None:
        """Run a turn of a thread to its end.

        Raises:
            RpcError: the server refused it.
            ConnectionError: the connection has ended, or the turn has not completed well.
        """
        ended: asyncio.Future[JsonObject] = asyncio.get_running_loop().create_future()
        self._answers[thread_id] = ended
        try:
            given = [{"type": "text", "text": text}]
            await self.call("turn/start", {"threadId": thread_id, "input": given})
            turn = await ended
        finally:
            del self._answers[thread_id]
        if turn["status"] != "completed":
            raise ConnectionError(f"a turn ended as {turn['status']}: {turn.get('error')}")

    def _take(self, message: Json) -> None:
        if message.get("method") == "turn/completed":
            self._settle(message["params"]["threadId"], message["params"]["turn"])
        else:
            super()._take(message)


@asynccontextmanager
async def converse(address: ServerAddress) -> AsyncIterator[Conversation]:
    """Connect to an app-server and shake hands, with its experimental members.

    Raises:
        ValueError: this is no `ws://` or `unix://` URL.
        OSError: nobody listens there, or no app-server, or there is no token in the file.
        RpcError: the server refuses the handshake.
    """
    async with contextlib.AsyncExitStack() as stack:
        try:
            opening = address.opened(max_size=None, open_timeout=OPEN_S)
            socket = await stack.enter_async_context(opening)
        except HandshakeFailed as exc:
            raise ConnectionError(f"{address.url}: {exc}") from exc
        conversation = Conversation(socket)
        reader = asyncio.create_task(conversation.run())
        try:
            await conversation.initialize(name="bench", version="1")
            yield conversation
        finally:
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reader


@dataclass
class Subject:
    """A server under the clock."""

    url: str
    server: Conversation
    config: JsonObject
    """Overrides of `thread/start` that make the bench's model answer."""
    threads: list[str] = field(default_factory=list)
    """Everything that was started, oldest first."""
    confined: str | None = None
    """The thread whose commands run in a sandbox, once one was needed."""

    async def start_thread(self, **more: Json) -> str:
        """Start a thread that the bench's model answers."""
        result = await self.server.call("thread/start", {"config": self.config, **more})
        thread_id = str(result["thread"]["id"])
        self.threads.append(thread_id)
        return thread_id

    async def prepare(self) -> None:
        """Make the threads that rows read, list and write to."""
        for _ in range(LISTED):
            await self.server.turn(await self.start_thread(), "hello")

    async def command(self, line: str) -> None:
        """Run a turn with a command in the sandbox `workspace-write`."""
        if self.confined is None:
            self.confined = await self.start_thread(
                sandbox="workspace-write", approvalPolicy="never"
            )
        await self.server.turn(self.confined, f"run {line}")


Step: TypeAlias = Callable[[Subject], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the report."""

    name: str
    step: Step
    calls: int = 1
    """Made in one step; processor time is shown for each of them, and so is the latency."""
    divisor: int = 1
    """A slow row makes so many times fewer steps than the others."""


async def _burst(subject: Subject) -> None:
    call = subject.server.call
    await asyncio.gather(*(call("thread/loaded/list", {}) for _ in range(IN_FLIGHT)))


def _list_threads(subject: Subject) -> Awaitable[object]:
    # No provider means the server's own one to some servers, an empty list every one.
    return subject.server.call("thread/list", {"limit": LISTED, "modelProviders": []})


def _list_servers(subject: Subject) -> Awaitable[object]:
    return subject.server.call("mcpServerStatus/list", {"detail": "toolsAndAuthOnly"})


def _inject(subject: Subject) -> Awaitable[object]:
    params = {"threadId": subject.threads[0], "items": [SIGNAL]}
    return subject.server.call("thread/inject_items", params)


ROWS = (
    Row("thread/loaded/list", lambda one: one.server.call("thread/loaded/list", {})),
    Row(f"{IN_FLIGHT} in flight, each", _burst, calls=IN_FLIGHT, divisor=10),
    Row(
        "thread/read",
        lambda one: one.server.call("thread/read", {"threadId": one.threads[0]}),
    ),
    Row(f"thread/list of {LISTED}", _list_threads),
    Row("mcpServerStatus/list", _list_servers),
    Row("thread/inject_items", _inject),
    Row(
        "command/exec true",
        lambda one: one.server.call("command/exec", {"command": ["true"]}),
        divisor=10,
    ),
    Row("thread/start", lambda one: one.start_thread(), divisor=4),
    Row("a turn of text", lambda one: one.server.turn(one.threads[1], "hello"), divisor=4),
    Row(
        f"a turn of {DELTAS:,} deltas",
        lambda one: one.server.turn(one.threads[1], f"deltas {DELTAS}"),
        divisor=40,
    ),
    Row("a turn with `true`, confined", lambda one: one.command("true"), divisor=8),
    Row(
        f"{PRINTED_MB} MB of output, confined",
        lambda one: one.command(f"yes | head -c {PRINTED_MB}000000"),
        divisor=80,
    ),
)
