"""One client that follows threads of as many nodes as it may, and of one more."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

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
    heard: list[str] = field(default_factory=list)
    load: ConnectionLoad = field(default_factory=lambda: ConnectionLoad(0, 0, 0))

    def post(self, text: str, delta: Delta | None = None) -> None:
        self.heard.append(text)

    async def wait_for_room(self) -> None:
        raise AssertionError("it is not behind")

    def give_up(self) -> None:
        raise AssertionError("it has missed nothing")


@dataclass(frozen=True)
class Owners:
    """Each thread has an owner of its own."""

    address: str
    own_id: str = "this"

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

    def has_loaded(self, method: str) -> bool:
        return True

    def refused(self, failure: str) -> None:
        raise AssertionError(failure)


@dataclass
class Nodes:
    """All other nodes, as one server."""

    open: int = 0

    async def converse(self, connection: ServerConnection) -> None:
        self.open += 1
        async for text in connection:
            message = json.loads(text)
            if "id" in message:
                thread = {"id": message["params"].get("threadId"), "turns": []}
                answer = {"id": message["id"], "result": {"thread": thread}}
                await connection.send(json.dumps(answer, separators=(",", ":")))
        self.open -= 1


@dataclass
class Routed:
    """A client of this node, and what it asks for."""

    routes: ClientRoutes
    connection_id: int
    nodes: Nodes

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
        with hub.connect(Client()) as connection_id:
            async with client_routes(Here(), group) as routes:
                at = Routed(routes, connection_id, nodes)
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
