"""Routes of requests about threads: to their owners, or to this node.

`ClientRoutes` stands between a client's connection and the dispatcher of this node. `OwnRequests`
stands there for clients of other nodes, whose requests go no further.
Source: docs/scale.md, "Requests for other nodes", "When an owner dies".
"""

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import anyio.abc
from pydantic import TypeAdapter
from pydantic_core import from_json

from app_server.fleet.catching_up import NEWEST_TURNS, DeliveredTurn, Mark, TooMuchMissed
from app_server.fleet.link import (
    MARKED,
    MOVED,
    LinkEnd,
    LinkLost,
    NodeLink,
    OwnerMoved,
    mark_of,
)
from app_server.peer.node import NodeAddress, NodeUnreachable
from app_server.rpc.connection import Requests
from app_server.rpc.context import ConnectionId, InitializedClient, RequestContext
from app_server.rpc.dispatch import storage_failed
from app_server.rpc.hub import Hub
from app_server.threads.nodes import Owner, ThreadOwners
from protocol.contract.methods import METHOD_OF, METHODS
from protocol.contract.specs import Access
from protocol.jsonrpc.envelope import Request, render_error
from protocol.jsonrpc.errors import RpcError, internal_error, invalid_request, overloaded
from protocol.model import Json, WireModel
from protocol.thread_ids import is_thread_id, usual_form
from protocol.threads.notifications import ThreadClosedNotification
from protocol.turns.turn import Turn

logger = logging.getLogger(__name__)

LOADED_LIST = "thread/loaded/list"
"""Method that is answered from memory by a server alone, and asks the store in a group."""

MAX_OWNERS = 64
"""Nodes that one client has links to."""
MAX_ROUTES = 10_000
"""Threads of one client whose owner is known without a look."""
LOOK_S = 0.25
MAX_LOOK_S = 1.0
"""Between looks for an owner in the place of one that does not answer: at first, and at last."""
TAKEOVER_S = 30.0
"""For a thread to have an owner again, after which its clients are given up."""
UNREACHABLE_S = 12.0
"""For an owner to be reached: longer than a dead one counts as living with the default lease."""
MAX_MOVES = 8
"""Times that a request follows a thread from owner to owner."""

REPEATED = frozenset({"thread/resume", "thread/start"})
"""Methods that may be sent again as the id of the thread names what they do."""

GONE = ("threadNotFound", "threadArchived")
"""Words of errors to a resume, after which it is not tried again."""

_TURNS = TypeAdapter(list[Turn])


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The group of nodes, as its routes need it."""

    owners: ThreadOwners
    hub: Hub
    is_loaded: Callable[[str], bool]
    """Whether this node has a thread in memory."""
    address_of: Callable[[Owner], NodeAddress]
    """Returns the address of a node for one connection; raises NodeUnreachable."""
    routes: "set[ClientRoutes]" = field(default_factory=set)
    """Of the clients that are connected."""

    def notified_by_owner(self, thread_id: str, event: WireModel) -> set[ConnectionId]:
        """Return the clients of this node that the thread's owner notifies, or has notified."""
        method = METHOD_OF[type(event).__name__]
        return {
            routes.connection_id
            for routes in self.routes
            if routes.connection_id is not None and routes.is_notified(thread_id, method)
        }

    def has_subscribers(self, thread_id: str) -> bool:
        """Whether a client here is subscribed to a thread of another node, or of one that died."""
        return any(routes.is_subscribed(thread_id) for routes in self.routes)


def thread_of(request: Request) -> str | None:
    """Return the thread that a request is about; None: none, or what is no id."""
    params = request.params
    thread_id = params.get("threadId") if isinstance(params, dict) else None
    if not isinstance(thread_id, str) or not is_thread_id(thread_id):
        return None
    return usual_form(thread_id)


def may_be_repeated(request: Request) -> bool:
    """Whether a request has one effect, however often it is sent."""
    if METHODS[request.method].order.access is Access.SHARED or request.method in REPEATED:
        return True
    params = request.params
    if not isinstance(params, dict):
        return False
    meta = params.get("_meta")
    is_operation = isinstance(meta, dict) and isinstance(meta.get("operationId"), str)
    if is_operation and METHODS[request.method].takes_operation:
        return True
    return isinstance(params.get("clientUserMessageId"), str)


class OwnRequests:
    """Requests of another node's client: those about threads that are here, and no others."""

    def __init__(self, requests: Requests, group: Group) -> None:
        self._requests = requests
        self._group = group

    @property
    def services(self) -> object:
        """Services that handlers get with each request."""
        return self._requests.services

    def is_immediate(self, method: str) -> bool:
        """Whether a method is answered without waiting; see Requests."""
        return self._requests.is_immediate(method)

    def refused(self, failure: str) -> None:
        """Count an error to what is not dispatched."""
        self._requests.refused(failure)

    async def dispatch(self, context: RequestContext[Any], request: Request) -> str:
        """Answer a request, or say that the thread is not here."""
        thread_id = thread_of(request)
        if context.initialized is not None and thread_id is not None:
            spec = METHODS.get(request.method)
            if spec is not None and spec.owned and not self._group.is_loaded(thread_id):
                try:
                    owner = await self._group.owners.owner(thread_id)
                except OSError as exc:
                    return _error(context, request, storage_failed(exc, "no owner can be found"))
                if owner is None or owner.node_id != self._group.owners.own_id:
                    moved = invalid_request(
                        "the thread is not here", MOVED, threadId=thread_id, retriable=True
                    )
                    return _error(context, request, moved)
        return await self._requests.dispatch(context, request)


@dataclass(slots=True)
class _Opening:
    """A link that is being opened, and who waits for it."""

    over: anyio.Event = field(default_factory=anyio.Event)
    failure: NodeUnreachable | None = None


class _Silences:
    """Nodes that could not be reached, and since when."""

    def __init__(self) -> None:
        self._tries: dict[str, tuple[float, float]] = {}
        """By node, the first and the last one that failed."""

    def note(self, node_id: str) -> None:
        """Note a try that failed now."""
        now = anyio.current_time()
        recent = {one: at for one, at in self._tries.items() if at[1] > now - UNREACHABLE_S}
        recent[node_id] = recent.get(node_id, (now, now))[0], now
        self._tries = recent

    def end(self, node_id: str) -> None:
        """Note that a node was reached."""
        self._tries.pop(node_id, None)

    def is_long(self, node_id: str) -> bool:
        """Whether a node could not be reached for longer than a dead one counts as living."""
        first, last = self._tries.get(node_id, (0.0, 0.0))
        return last - first > UNREACHABLE_S


class ClientRoutes:
    """Requests of one client of this node."""

    def __init__(self, requests: Requests, group: Group, tasks: anyio.abc.TaskGroup) -> None:
        """`tasks` end with the client's conversation."""
        self._requests = requests
        self._group = group
        self._tasks = tasks
        self._introduction: Json = None
        """The parameters of the client's `initialize`."""
        self._client: InitializedClient | None = None
        self._end: LinkEnd | None = None
        self._links: dict[str, NodeLink] = {}
        """By node."""
        self._opening: dict[str, _Opening] = {}
        """By node, the link that is being opened."""
        self._silences = _Silences()
        self._routes: dict[str, NodeLink] = {}
        """By thread, the one that was asked for last at the end."""
        self._taken_over: dict[str, anyio.Event] = {}
        """Threads whose owner has died; the event: they have one again, or are given up."""

    @property
    def services(self) -> object:
        """Services that handlers get with each request."""
        return self._requests.services

    @property
    def connection_id(self) -> ConnectionId | None:
        """None before the client has introduced itself."""
        return None if self._end is None else self._end.connection_id

    def is_notified(self, thread_id: str, method: str) -> bool:
        """Whether the client is told of a change of a thread by the node that made it."""
        return any(link.notifies(thread_id, method) for link in self._links.values())

    def is_subscribed(self, thread_id: str) -> bool:
        """Whether the client is subscribed to a thread at another node, or will be at its next."""
        if thread_id in self._taken_over:
            return True
        return any(thread_id in link.followed for link in self._links.values())

    def is_immediate(self, method: str) -> bool:
        """Whether a method is answered without waiting; see Requests."""
        return method != LOADED_LIST and self._requests.is_immediate(method)

    def refused(self, failure: str) -> None:
        """Count an error to what is not dispatched."""
        self._requests.refused(failure)

    async def dispatch(self, context: RequestContext[Any], request: Request) -> str:
        """Answer a request here, or have the owner of its thread answer it."""
        if context.initialized is None:
            return await self._introduce(context, request)
        thread_id = thread_of(request)
        if thread_id is not None and not self._group.is_loaded(thread_id):
            spec = METHODS.get(request.method)
            if spec is not None and (
                spec.owned
                # Who follows a thread reads what runs in it, which the database does not know.
                or (spec.order.access is Access.SHARED and thread_id in self._routes)
            ):
                return await self._answer(context, request, thread_id)
        return await self._requests.dispatch(context, request)

    async def _introduce(self, context: RequestContext[Any], request: Request) -> str:
        text = await self._requests.dispatch(context, request)
        if context.initialized is not None:
            self._client, self._introduction = context.initialized, request.params
            self._end = LinkEnd(self._group.hub, context.connection_id, context.jsonrpc)
        return text

    async def _answer(self, context: RequestContext[Any], request: Request, thread_id: str) -> str:
        try:
            for _ in range(MAX_MOVES):
                try:
                    link = await self._link_to(thread_id)
                    if link is not None:
                        return await self._ask(link, context, request, thread_id)
                except OwnerMoved:
                    continue
                except LinkLost:
                    if not may_be_repeated(request):
                        raise
                    continue
                text = await self._requests.dispatch(context, request)
                if context.failure != "threadBusy":
                    return text
                # Another node has taken it since the look.
                context.failure = None
            raise LinkLost
        except LinkLost:
            error = internal_error(
                f"the node that had thread {thread_id} was lost, and may have done this or not",
                "ownerLost",
                threadId=thread_id,
                retriable=True,
            )
        except NodeUnreachable as exc:
            logger.warning("the owner of thread %s cannot be reached: %s", thread_id, exc)
            error = internal_error(
                f"the node that has thread {thread_id} cannot be reached",
                "ownerUnreachable",
                threadId=thread_id,
                retriable=True,
            )
        except OSError as exc:
            error = storage_failed(exc, f"the owner of thread {thread_id} cannot be found")
        except RpcError as exc:
            error = exc
        return _error(context, request, error)

    async def _ask(
        self, link: NodeLink, context: RequestContext[Any], request: Request, thread_id: str
    ) -> str:
        try:
            seen = None
            if request.method in REPEATED:
                seen = link.followed.get(thread_id) or await self._delivered_with(
                    link, request, thread_id
                )
            text, is_error = await link.call(request, context, seen)
        except OwnerMoved:
            self._routes.pop(thread_id, None)
            raise
        if is_error:
            context.failure = "passedOn"
        elif request.method == "thread/unsubscribe":
            link.followed.pop(thread_id, None)
        return text

    async def _delivered_with(
        self, link: NodeLink, request: Request, thread_id: str
    ) -> DeliveredTurn:
        """Return the record for a thread that a client begins to follow by a request."""
        params = request.params
        assert isinstance(params, dict), "it names a thread"
        if request.method == "thread/resume" and not (
            params.get("excludeTurns") or params.get("afterSeq") is not None
        ):
            # The answer shows it, or there is none.
            return DeliveredTurn()
        # It counts as told: what runs now has its end told, and what begins from now on is told.
        turns = await self._newest_turns(thread_id, link, limit=1)
        return DeliveredTurn.from_answer([turn.model_dump(by_alias=True) for turn in turns])

    # Links.

    async def _link_to(self, thread_id: str) -> NodeLink | None:
        """Return the link to the owner of a thread; None: this node is it, or may become it.

        Raises:
            NodeUnreachable, RpcError, OSError
        """
        if (taken_over := self._taken_over.get(thread_id)) is not None:
            await taken_over.wait()
        if self._group.is_loaded(thread_id):
            return None
        link = self._routes.pop(thread_id, None)
        if link is None or link.is_lost:
            link = await self._find_link(thread_id)
        if link is not None:
            self._routes[thread_id] = link
            if len(self._routes) > MAX_ROUTES:
                del self._routes[next(iter(self._routes))]
        return link

    async def _find_link(self, thread_id: str) -> NodeLink | None:
        look_s = LOOK_S
        while True:
            death = self._group.owners.next_death
            owner = await self._group.owners.owner(thread_id)
            if owner is None or owner.node_id == self._group.owners.own_id:
                return None
            try:
                return await self._link(owner)
            except NodeUnreachable as exc:
                # It may be dead, and the database not know it yet.
                if exc.is_final or self._silences.is_long(owner.node_id):
                    raise
            with anyio.move_on_after(look_s):
                await death.wait()
            look_s = min(2 * look_s, MAX_LOOK_S)

    async def _link(self, owner: Owner) -> NodeLink:
        """Return the link to a node, which is opened if there is none.

        Raises:
            NodeUnreachable: it cannot be opened; all who wait for it are told.
            RpcError: there are too many.
        """
        while True:
            link = self._links.get(owner.node_id)
            if link is not None and not link.is_lost:
                return link
            opening = self._opening.get(owner.node_id)
            if opening is None:
                return await self._open(owner)
            await opening.over.wait()
            if opening.failure is not None:
                raise NodeUnreachable(str(opening.failure), is_final=opening.failure.is_final)

    async def _open(self, owner: Owner) -> NodeLink:
        opening = self._opening[owner.node_id] = _Opening()
        try:
            if len(self._links) >= MAX_OWNERS:
                self._close_idle()
            link = await self._tasks.start(self._hold, owner)
        except NodeUnreachable as exc:
            opening.failure = exc
            self._silences.note(owner.node_id)
            raise
        finally:
            del self._opening[owner.node_id]
            opening.over.set()
        assert isinstance(link, NodeLink)
        self._silences.end(owner.node_id)
        return link

    def _close_idle(self) -> None:
        """Make room for one more link.

        Raises:
            RpcError: the client follows threads over all of them.
        """
        for node_id, link in self._links.items():
            if link.is_idle:
                del self._links[node_id]
                link.is_lost = True
                link.scope.cancel()
                return
        raise overloaded()

    async def _hold(self, owner: Owner, *, task_status: anyio.abc.TaskStatus[NodeLink]) -> None:
        """Hold the link to a node until that has gone, and see then to the threads it had."""
        assert self._end is not None, "a client has introduced itself before it asks for a thread"
        async with self._group.address_of(owner).opened() as socket:
            link = NodeLink(owner, socket, self._end)
            await link.introduce(self._introduction)
            self._links[owner.node_id] = link
            task_status.started(link)
            with link.scope:
                await link.run()
            # Before the socket is closed, which takes time.
            self._lost(link)
            if socket.was_given_up:
                logger.warning("a client reads too slowly what node %s says", owner.node_id)
                self._give_up()

    def _lost(self, link: NodeLink) -> None:
        if self._links.get(link.owner.node_id) is link:
            del self._links[link.owner.node_id]
        for thread_id, seen in link.followed.items():
            if thread_id not in self._taken_over:
                self._taken_over[thread_id] = anyio.Event()
                self._tasks.start_soon(self._follow_on, thread_id, seen)

    # After an owner has died.

    async def _follow_on(self, thread_id: str, seen: DeliveredTurn) -> None:
        """Have a client follow a thread at its next owner, which may be this node."""
        over = self._taken_over[thread_id]
        try:
            until = anyio.current_time() + TAKEOVER_S
            look_s, death = LOOK_S, self._group.owners.next_death
            is_resumed = await self._resumed(thread_id, seen)
            while not is_resumed and anyio.current_time() < until:
                with anyio.move_on_after(look_s):
                    await death.wait()
                look_s, death = min(2 * look_s, MAX_LOOK_S), self._group.owners.next_death
                is_resumed = await self._resumed(thread_id, seen)
            if not is_resumed:
                logger.warning("thread %s has no owner in %g s", thread_id, TAKEOVER_S)
                self._give_up()
        finally:
            del self._taken_over[thread_id]
            over.set()

    def _give_up(self) -> None:
        """Close the client's connection, as it has missed what cannot be sent again."""
        assert self._end is not None
        peer = self._group.hub.connections.peers.get(self._end.connection_id)
        if peer is not None:
            peer.give_up()

    async def _resumed(self, thread_id: str, seen: DeliveredTurn) -> bool:
        """Resume a thread for a client and bring it up to date; False: not yet."""
        context = self._own_context("thread/resume")
        asked = {"threadId": thread_id, "excludeTurns": True}
        request = Request("thread/resume", "thread/resume", asked)
        link = None
        seen.early = seen.early or {}
        try:
            owner = await self._group.owners.owner(thread_id)
            if owner is None or owner.node_id == self._group.owners.own_id:
                text = await self._requests.dispatch(context, request)
                is_error = context.failure is not None
            else:
                link = await self._link(owner)
                text, is_error = await link.call(request, context, seen)
            if is_error:
                return self._is_gone(thread_id, text)
            turns = await self._newest_turns(thread_id, link)
            if link is None:
                # Of what the log had a moment ago, all is announced when this is answered.
                await self._group.owners.owner(thread_id)
                seq = from_json(text)["result"]["seq"]
                for mark in _announced_since(self._group.hub, thread_id, seq):
                    seen.note(mark)
            for event in seen.brought_up(thread_id, turns):
                self._group.hub.notify(context.connection_id, event)
        except TooMuchMissed:
            logger.warning("thread %s had more turns than a client is told of", thread_id)
            self._give_up()
        except (OSError, LinkLost, OwnerMoved, RpcError) as exc:
            logger.info("thread %s cannot be followed yet: %s", thread_id, exc or type(exc))
            return False
        finally:
            context.answered()
        if link is not None:
            self._routes[thread_id] = link
            # Its threads are seen to by whoever follows them on, which is this one.
            return not link.is_lost
        return True

    def _is_gone(self, thread_id: str, text: str) -> bool:
        """Whether a thread cannot be followed any more, which its client is told then."""
        word = (from_json(text)["error"].get("data") or {}).get("code")
        if word not in GONE:
            logger.info("thread %s cannot be followed yet: %.500s", thread_id, text)
            return False
        assert self._end is not None
        closed = ThreadClosedNotification(thread_id=thread_id)
        self._group.hub.notify(self._end.connection_id, closed)
        return True

    async def _newest_turns(
        self, thread_id: str, link: NodeLink | None, limit: int = NEWEST_TURNS
    ) -> list[Turn]:
        """Read the newest turns of a thread, with as much of their items as fits an answer.

        Its owner is asked, who knows what runs, and what has been told.

        Raises:
            LinkLost, OwnerMoved
            OSError: the owner, or this node, cannot read them.
        """
        for view in ("full", "summary", "notLoaded"):
            context = self._own_context("thread/turns/list")
            asked = {"threadId": thread_id, "limit": limit, "itemsView": view}
            request = Request("thread/turns/list", "thread/turns/list", asked)
            try:
                if link is None:
                    text = await self._requests.dispatch(context, request)
                    is_error = context.failure is not None
                else:
                    text, is_error = await link.call(request, context)
            finally:
                context.answered()
            if not is_error:
                return _TURNS.validate_python(from_json(text)["result"]["data"])
        raise OSError(f"the turns of thread {thread_id} cannot be read: {text[:500]}")

    def _own_context(self, method: str) -> RequestContext[Any]:
        """Return the context of a request that this node makes for the client."""
        assert self._end is not None
        assert self._client is not None
        capabilities = self._client.capabilities.model_copy(update={"experimental_api": True})
        client = replace(self._client, capabilities=capabilities)
        return RequestContext(self._end.connection_id, method, False, client, self.services)


def _announced_since(hub: Hub, thread_id: str, seq: int) -> Iterator[Mark]:
    """Give what a thread of this node has announced behind a number, which comes as it is."""
    stream = hub.streams.find(thread_id)
    for message in () if stream is None else stream.since(seq):
        if message.method in MARKED:
            yield mark_of(message.method, message.text((False, False, False)))[1]


def _error(context: RequestContext[Any], request: Request, error: RpcError) -> str:
    context.failure = error.word
    return render_error(request.id, error.to_wire(), jsonrpc=context.jsonrpc)


@asynccontextmanager
async def client_routes(requests: Requests, group: Group) -> AsyncIterator[ClientRoutes]:
    """Give the routes of a client; its links end with the context."""
    async with anyio.create_task_group() as tasks:
        routes = ClientRoutes(requests, group, tasks)
        group.routes.add(routes)
        try:
            yield routes
        finally:
            group.routes.discard(routes)
        tasks.cancel_scope.cancel()
