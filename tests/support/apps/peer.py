"""The two sides of local routes for tests: the endpoint's, played, and a client over the SDK."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import anyio
import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.dispatcher import CallOptions, DispatchContext
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from pydantic import SecretStr

from app_server.apps.files.files import FileSupport
from app_server.apps.inventory.inventory import build_inventory
from app_server.apps.inventory.names import allocate_routes
from app_server.apps.routes.backing import DownstreamPeer, RouteBounds
from app_server.apps.routes.generation import Generation, GenerationPorts, open_generation
from app_server.mcp_wire.errors import PeerError, ProgressCallback
from protocol.model import JsonObject
from tests.support.changes import Changes
from tests.support.harness import WAIT_S
from tests.support.http_peer import NO_CERTIFICATES

VERSION = "2025-06-18"


def listed(
    name: str, connector: str = "cal", *, meta: JsonObject | None = None, **more: Any
) -> JsonObject:
    """Return a tool as the endpoint lists it; the connector `cal` is called Cal."""
    told = {"connector_id": connector, "connector_name": connector.title(), **(meta or {})}
    return {"name": name, "inputSchema": {"type": "object"}, **more, "_meta": told}


@dataclass
class Exchange:
    """One request that the endpoint gets."""

    key: Hashable
    method: str
    params: JsonObject
    peer: DownstreamPeer
    report: ProgressCallback | None


Answer: TypeAlias = Callable[[Exchange], Awaitable[JsonObject]]


async def done(exchange: Exchange) -> JsonObject:
    """Answer as a tool that has nothing to say."""
    return {"content": [{"type": "text", "text": "done"}]}


@dataclass
class FakePool:
    """A SessionPool whose endpoint is a function."""

    answer: Answer = done
    exchanges: list[Exchange] = field(default_factory=list)
    sessions: set[Hashable] = field(default_factory=set)
    closed: list[Hashable] = field(default_factory=list)
    on_open: Callable[[], Awaitable[None]] | None = None
    """Awaited before a session is given."""
    changes: Changes = field(default_factory=Changes)
    """Noted with each request, and when a session is closed."""

    @asynccontextmanager
    async def session_of(self, key: Hashable, peer: DownstreamPeer) -> AsyncIterator["FakeSession"]:
        if self.on_open is not None:
            await self.on_open()
        self.sessions.add(key)
        yield FakeSession(self, key, peer)

    async def close(self, key: Hashable) -> None:
        self.sessions.discard(key)
        self.closed.append(key)
        self.changes.note()

    def shut_down(self) -> None:
        raise AssertionError("the pool is closed by whoever publishes")

    def asked(self) -> list[tuple[str, JsonObject]]:
        """Return what came, in order."""
        return [(exchange.method, exchange.params) for exchange in self.exchanges]


@dataclass
class FakeSession:
    """One session with the endpoint."""

    pool: FakePool
    key: Hashable
    peer: DownstreamPeer

    async def request(
        self, method: str, params: JsonObject, *, on_progress: ProgressCallback | None = None
    ) -> JsonObject:
        exchange = Exchange(self.key, method, params, self.peer, on_progress)
        self.pool.exchanges.append(exchange)
        self.pool.changes.note()
        return await self.pool.answer(exchange)


class Hold:
    """An answer that waits to be let go."""

    def __init__(self, then: Answer = done) -> None:
        self.reached = asyncio.Event()
        self.let_go = asyncio.Event()
        self.cancelled = asyncio.Event()
        self._then = then

    async def __call__(self, exchange: Exchange) -> JsonObject:
        self.reached.set()
        try:
            await self.let_go.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return await self._then(exchange)

    async def wait_until_reached(self) -> None:
        with anyio.fail_after(WAIT_S):
            await self.reached.wait()


def refuses(code: int, message: str, data: Any = None) -> Answer:
    """Answer with an error."""

    async def answer(exchange: Exchange) -> JsonObject:
        raise PeerError(code, message, data)

    return answer


def returns(result: JsonObject) -> Answer:
    """Answer with a result."""

    async def answer(exchange: Exchange) -> JsonObject:
        return result

    return answer


@dataclass
class Guard:
    """Credentials that can be changed."""

    held: bool = True
    asked: int = 0
    """How often somebody looked: twice for each request, once more before each step of a call."""
    changes: Changes = field(default_factory=Changes)

    def holds(self) -> bool:
        self.asked += 1
        self.changes.note()
        return self.held

    async def settle(self) -> None:
        pass


@dataclass
class Served:
    """A generation, and what stands behind it."""

    generation: Generation
    pool: FakePool
    guard: Guard
    refreshed: list[str]

    @asynccontextmanager
    async def client(
        self, server: str = "codex_apps__cal", **options: Any
    ) -> AsyncIterator["LocalClient"]:
        """Connect to a route with its bearer and shake hands."""
        bearer = self.generation.bearer(server)
        async with connect(self.generation.url(server), bearer, **options) as client:
            yield client


@asynccontextmanager
async def serve_tools(
    tools: Sequence[JsonObject],
    pool: FakePool | None = None,
    files: FileSupport | None = None,
    refresh: Callable[[], Awaitable[None]] | None = None,
    bounds: RouteBounds | None = None,
) -> AsyncIterator[Served]:
    """Serve an inventory while the context lasts."""
    inventory = build_inventory(tools)
    refreshed: list[str] = []

    async def note() -> None:
        refreshed.append("refreshed")
        if refresh is not None:
            await refresh()

    pool, guard = pool or FakePool(), Guard()
    async with anyio.create_task_group() as tasks:
        routes = allocate_routes(inventory)
        generation = await open_generation(
            tasks,
            inventory,
            routes,
            GenerationPorts(pool, guard, files, note, bounds or RouteBounds()),
        )
        try:
            yield Served(generation, pool, guard, refreshed)
        finally:
            with anyio.CancelScope(shield=True), anyio.fail_after(WAIT_S):
                await generation.close()


Asked: TypeAlias = Callable[[str, JsonObject], Awaitable[JsonObject]]


class LocalClient:
    """A client of one route: the SDK's transport and dispatcher, without its types."""

    def __init__(self, dispatcher: JSONRPCDispatcher, asked: Asked | None) -> None:
        self._dispatcher = dispatcher
        self._asked = asked
        self.hello: JsonObject = {}
        self.listening = asyncio.Event()
        """Set when the stream for what the server asks is open."""
        self.session_id = ""

    async def listens(self) -> None:
        """Wait until the server can ask."""
        with anyio.fail_after(WAIT_S):
            await self.listening.wait()

    async def request(self, method: str, params: JsonObject | None = None, **options: Any) -> Any:
        """Call a method; MCPError when it is refused."""
        sent: CallOptions = {"headers": {"mcp-protocol-version": VERSION}, **options}  # type: ignore[typeddict-item]
        with anyio.fail_after(WAIT_S):
            return await self._dispatcher.send_raw_request(method, params, sent)

    async def call(self, name: str, arguments: Any = None, **meta: Any) -> Any:
        """Call a tool."""
        params = {"name": name, "arguments": arguments or {}}
        return await self.request("tools/call", {**params, "_meta": meta} if meta else params)

    async def refusal(self, method: str, params: JsonObject | None = None) -> tuple[int, str, Any]:
        """Return the error of a request that must fail."""
        try:
            answer = await self.request(method, params)
        except MCPError as exc:
            return exc.code, exc.message, exc.data
        raise AssertionError(f"{method} was answered: {answer}")

    async def answer(
        self, context: DispatchContext[Any], method: str, params: Mapping[str, Any] | None
    ) -> JsonObject:
        """Answer what the server asks."""
        if self._asked is None:
            raise MCPError(-32601, f"no {method}")
        return await self._asked(method, dict(params or {}))

    async def on_notification(
        self, context: DispatchContext[Any], method: str, params: Mapping[str, Any] | None
    ) -> None:
        """Ignore a notification; progress has been taken out before."""


@asynccontextmanager
async def connect(
    url: str,
    bearer: SecretStr,
    *,
    capabilities: JsonObject | None = None,
    asked: Asked | None = None,
) -> AsyncIterator[LocalClient]:
    """Connect to a route; leaving ends the session."""
    authorization = {"authorization": f"Bearer {bearer.get_secret_value()}"}
    clients: list[LocalClient] = []

    async def watch(response: httpx2.Response) -> None:
        if response.request.method == "GET" and response.status_code == 200:
            clients[0].session_id = response.request.headers["mcp-session-id"]
            clients[0].listening.set()

    async with (
        httpx2.AsyncClient(
            verify=NO_CERTIFICATES,
            headers=authorization,
            trust_env=False,
            timeout=None,
            event_hooks={"response": [watch]},
        ) as http,
        streamable_http_client(url, http_client=http) as streams,
        anyio.create_task_group() as tasks,
    ):
        dispatcher = JSONRPCDispatcher(*streams)
        client = LocalClient(dispatcher, asked)
        clients.append(client)
        await tasks.start(dispatcher.run, client.answer, client.on_notification)
        client.hello = await client.request(
            "initialize",
            {
                "protocolVersion": VERSION,
                "capabilities": capabilities or {},
                "clientInfo": {"name": "test", "version": "1"},
            },
        )
        await dispatcher.notify(
            "notifications/initialized", None, {"headers": {"mcp-protocol-version": VERSION}}
        )
        yield client
        tasks.cancel_scope.cancel()
