"""Routes of one client to nodes that the test plays: how many, and what becomes of lost ones."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.lowlevel
from websockets.asyncio.server import ServerConnection, serve
from websockets.typing import Subprotocol

from app_server.fleet.routing import MAX_OWNERS, ClientRoutes, Group, client_routes
from app_server.peer.node import NodeAddress
from app_server.rpc.connection import ConnectionLoad
from app_server.rpc.context import InitializedClient, RequestContext
from app_server.rpc.hub import Hub
from app_server.rpc.outbox import Delta
from app_server.threads.nodes import Owner
from protocol.jsonrpc.envelope import Request, render_error
from protocol.jsonrpc.errors import internal_error
from protocol.server.lifecycle import ClientInfo, InitializeCapabilities

SESSION = InitializedClient(ClientInfo(name="c", version="1"), InitializeCapabilities(), False)


def thread_of(number: int) -> str:
    return f"01a2203f-860d-7120-b637-{number:012d}"


@dataclass
class Client:
    """A client of this node."""

    initialized: InitializedClient | None = SESSION
    is_of_node: bool = False
    is_behind: bool = False
    heard: list[Any] = field(default_factory=list)
    more: asyncio.Event = field(default_factory=asyncio.Event)
    is_given_up: bool = False
    load: ConnectionLoad = field(default_factory=lambda: ConnectionLoad(0, 0, 0))

    def post(self, *texts: str, delta: Delta | None = None) -> None:
        self.heard.extend(map(json.loads, texts))
        self.more.set()

    async def wait_for_room(self) -> None:
        raise AssertionError("it is not behind")

    def give_up(self) -> None:
        self.is_given_up = True
        self.more.set()

    async def until_given_up(self) -> None:
        with anyio.fail_after(60):
            while not self.is_given_up:
                self.more.clear()
                await self.more.wait()


@dataclass(frozen=True)
class Owners:
    """Each thread has an owner of its own."""

    address: str
    own_id: str = "this"
    next_death: anyio.Event = field(default_factory=anyio.Event)

    def now_s(self) -> float:
        return 0.0

    async def owner(self, thread_id: str) -> Owner | None:
        return Owner(f"node of {thread_id}", self.address)


class Here:
    """Requests that stay at this node: the handshake alone."""

    services = None

    async def dispatch(self, context: RequestContext[Any], request: Request) -> str:
        if request.method == "initialize":
            context.initialized = SESSION
            return "{}"
        return render_error(request.id, internal_error("not here").to_wire(), jsonrpc=False)

    def is_immediate(self, method: str) -> bool:
        return True

    def refused(self, failure: str) -> None:
        raise AssertionError(failure)


@dataclass
class Nodes:
    """All other nodes, as one server."""

    turns: list[Any] = field(default_factory=list)
    """Turns of each thread, the newest first."""
    errors: list[Any] = field(default_factory=list)
    """Errors that the next resumes are answered with."""
    connections: set[ServerConnection] = field(default_factory=set)

    async def converse(self, connection: ServerConnection) -> None:
        self.connections.add(connection)
        async for text in connection:
            message = json.loads(text)
            if "id" not in message:
                continue
            thread = {"id": message["params"].get("threadId"), "turns": []}
            outcome: Any = {"result": {"thread": thread, "data": self.turns}}
            if message["method"] == "thread/resume" and self.errors:
                outcome = {"error": self.errors.pop(0)}
            answer = {"id": message["id"], **outcome}
            await connection.send(json.dumps(answer, separators=(",", ":")))
        self.connections.discard(connection)

    async def close_all(self, code: int) -> None:
        for connection in list(self.connections):
            await connection.close(code)


@dataclass
class Routed:
    """A client of this node, and what it asks for."""

    routes: ClientRoutes
    connection_id: int
    nodes: Nodes
    client: Client
    group: Group

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        initialized = None if method == "initialize" else SESSION
        context = RequestContext[Any](self.connection_id, method, False, initialized, None)
        answer = json.loads(await self.routes.dispatch(context, Request(1, method, params)))
        context.answered()
        assert isinstance(answer, dict)
        return answer


@asynccontextmanager
async def routed() -> AsyncIterator[Routed]:
    hub, nodes = Hub(), Nodes()
    server = await serve(nodes.converse, "127.0.0.1", 0, subprotocols=[Subprotocol("s")])
    async with server:
        url = f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"
        group = Group(
            owners=Owners(url),
            hub=hub,
            is_loaded=lambda thread_id: False,
            address_of=lambda owner: NodeAddress(url, "token", "s"),
        )
        client = Client()
        with hub.connect(client) as connection_id:
            async with client_routes(Here(), group) as routes:
                at = Routed(routes, connection_id, nodes, client, group)
                await at.ask("initialize", {})
                yield at


async def test_a_client_follows_threads_of_at_most_so_many_owners() -> None:
    async with routed() as at:
        for number in range(MAX_OWNERS):
            answer = await at.ask("thread/resume", {"threadId": thread_of(number)})
            assert answer["result"]["thread"]["id"] == thread_of(number)
        one_more = {"threadId": thread_of(MAX_OWNERS)}
        for _ in range(2):
            refused = await at.ask("thread/resume", one_more)
            assert refused["error"]["code"] == -32001
            assert refused["error"]["data"]["code"] == "overloaded"
        # The others go on, and one that is followed no more makes room.
        assert "result" in await at.ask("thread/name/set", {"threadId": thread_of(0), "name": "n"})
        await at.ask("thread/unsubscribe", {"threadId": thread_of(3)})
        assert "result" in await at.ask("thread/resume", one_more)
        again = await at.ask("thread/resume", {"threadId": thread_of(3)})
        assert again["error"]["data"]["code"] == "overloaded"
        # In any form of its id a thread is the same.
        shouted = {"threadId": thread_of(MAX_OWNERS).upper()}
        assert "result" in await at.ask("thread/name/set", {**shouted, "name": "n"})


FOLLOWED = thread_of(0)


def turn(number: int) -> dict[str, Any]:
    return {"id": str(number), "items": [], "status": "completed"}


async def test_a_node_knows_what_its_clients_follow_until_the_next_owner_is_found() -> None:
    late = {"code": -32001, "message": "Server overloaded; retry later."}
    async with routed() as at:
        for number in range(2):
            await at.ask("thread/resume", {"threadId": thread_of(number)})
            assert at.group.has_subscribers(thread_of(number))
        await at.ask("thread/unsubscribe", {"threadId": thread_of(1)})
        assert not at.group.has_subscribers(thread_of(1))
        at.nodes.turns, at.nodes.errors = [turn(1)], [late]
        await at.nodes.close_all(1011)
        with anyio.fail_after(60):
            while at.nodes.errors:
                # The next owner refuses once, and is asked again.
                assert at.group.has_subscribers(FOLLOWED)
                await anyio.lowlevel.checkpoint()
            while not at.client.heard:
                at.client.more.clear()
                await at.client.more.wait()
        assert at.group.has_subscribers(FOLLOWED)
        assert not at.group.has_subscribers(thread_of(1))


async def test_a_client_that_reads_too_slowly_for_the_owner_is_given_up() -> None:
    async with routed() as at:
        await at.ask("thread/resume", {"threadId": FOLLOWED})
        await at.nodes.close_all(1013)
        await at.client.until_given_up()


async def test_a_client_that_has_missed_many_turns_is_given_up() -> None:
    async with routed() as at:
        await at.ask("thread/resume", {"threadId": FOLLOWED})
        at.nodes.turns = [turn(number) for number in range(5, 0, -1)]
        await at.nodes.close_all(1011)
        await at.client.until_given_up()
        assert at.client.heard == []


async def test_a_thread_that_has_gone_meanwhile_is_closed_and_others_are_tried_again() -> None:
    gone = {"code": -32600, "message": "gone", "data": {"code": "threadNotFound"}}
    late = {"code": -32001, "message": "Server overloaded; retry later."}
    for errors, heard in (
        ([gone], ["thread/closed"]),
        ([late, late], ["turn/started", "turn/completed"]),
    ):
        async with routed() as at:
            await at.ask("thread/resume", {"threadId": FOLLOWED})
            at.nodes.turns, at.nodes.errors = [turn(1)], errors
            await at.nodes.close_all(1011)
            with anyio.fail_after(60):
                while len(at.client.heard) < len(heard):
                    at.client.more.clear()
                    await at.client.more.wait()
            assert [message["method"] for message in at.client.heard] == heard
            assert not at.client.is_given_up
