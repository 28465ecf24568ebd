"""Hub of connections, subscriptions to threads, and open server requests.

From top to bottom: a connection as the hub sees it, all that are open, who is subscribed to which
thread, the questions that are open, and the hub that has them all. Every event of a loaded thread
has a number and is kept for a while (`replay.py`), so that a client that was away can be sent what
it missed. Questions go to every subscriber of a thread; the first answer wins; a question that
nobody can answer waits for the next subscriber.
Source: docs/wire.md, "Replay", "Server requests".
"""

import itertools
import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import anyio
import anyio.lowlevel
from pydantic import ValidationError

from app_server.rpc.context import ConnectionId, InitializedClient
from app_server.rpc.outbox import Delta, Form, Message, Outgoing
from app_server.rpc.replay import Position, ReplayBuffers, ReplayLimits, ReplayRepeated
from protocol.contract.gate import is_experimental_variant
from protocol.contract.methods import METHOD_OF, NOTIFICATIONS, SERVER_REQUESTS
from protocol.jsonrpc.envelope import Answer, RepeatedNotifications, RequestId, render_request
from protocol.jsonrpc.errors import METHOD_NOT_FOUND
from protocol.model import Variant, WireModel
from protocol.threads.notifications import ServerRequestResolvedNotification

logger = logging.getLogger(__name__)


class PeerLoad(Protocol):
    """Load of a connection, as far as the hub needs it."""

    @property
    def chars(self) -> int:
        """Characters of the messages that wait to be sent."""


class Peer(Protocol):
    """One connection."""

    initialized: InitializedClient | None
    """None before its client has initialized."""
    is_of_node: bool
    """Whether another node passes on what its client asks, and tells it all else itself."""

    @property
    def is_behind(self) -> bool:
        """Whether so much waits that pieces of one text are joined."""

    def post(self, *texts: str, delta: Delta | None = None) -> None:
        """Queue messages; `delta` is the form of the only one that can be joined; never waits."""

    async def wait_for_room(self) -> None:
        """Wait while so much is to be sent that the client's requests are not read either."""

    def give_up(self) -> None:
        """Close the connection: it has missed something that cannot be sent again."""

    @property
    def load(self) -> PeerLoad:
        """Load of the connection."""


MAX_RUN = 64
"""Deltas that are queued at once for who is not behind; more may be too many for the queue."""


def post(peer: Peer, *messages: Message, as_subscriber: bool) -> None:
    """Queue messages of one method, unless the client does not want them or may not have them.

    `as_subscriber`: they are about a thread of its subscriptions, and carry their numbers.
    """
    form = _form_for(peer, messages[0].method, as_subscriber=as_subscriber)
    if form is None:
        return
    is_long = peer.is_behind or len(messages) > MAX_RUN
    if not (messages[0].is_delta and is_long):
        peer.post(*[message.text(form) for message in messages])
        return
    for message in messages:
        # The form that can be joined is needed by who falls behind alone.
        peer.post(message.text(form), delta=message.delta(form) if peer.is_behind else None)


def _form_for(peer: Peer, method: str, *, as_subscriber: bool) -> Form | None:
    client = peer.initialized
    if client is None or method in client.opted_out:
        return None
    spec = NOTIFICATIONS[method]
    if (spec.experimental or spec.opt_in) and not client.experimental:
        return None
    return client.experimental, client.jsonrpc, as_subscriber and client.experimental


WhenGone: TypeAlias = Callable[[ConnectionId], None]
"""Takes the connection that has ended; does not wait."""


class Connections:
    """The connections of one server, by ids that are never used again."""

    def __init__(self) -> None:
        self.peers: dict[ConnectionId, Peer] = {}
        """Open connections, in the order in which they came; only read from outside."""
        self.of_nodes: set[ConnectionId] = set()
        """Those that other nodes have opened."""
        self._ids = itertools.count(1)
        self._when_gone: dict[ConnectionId, dict[WhenGone, None]] = {}

    @contextmanager
    def opened(self, peer: Peer) -> Iterator[ConnectionId]:
        """Know a connection for as long as the context lasts; then run what waits for its end."""
        connection_id = next(self._ids)
        self.peers[connection_id] = peer
        if peer.is_of_node:
            self.of_nodes.add(connection_id)
        self._when_gone[connection_id] = {}
        try:
            yield connection_id
        finally:
            del self.peers[connection_id]
            self.of_nodes.discard(connection_id)
            self.end(connection_id)
            del self._when_gone[connection_id]

    def end(self, connection_id: ConnectionId) -> None:
        """Run what waits for the end of a connection; it may stay open for its last answers."""
        actions = self._when_gone[connection_id]
        while actions:
            action = next(iter(actions))
            del actions[action]
            action(connection_id)

    def when_gone(self, connection_id: ConnectionId, action: WhenGone) -> None:
        """Run `action` when a connection has ended; at once if it has.

        The same action is run once, however often it was given.
        """
        if connection_id in self._when_gone:
            self._when_gone[connection_id][action] = None
        else:
            action(connection_id)

    def waiting_chars(self, connection_id: ConnectionId) -> int:
        """Return how much waits to be sent to a connection; 0 once it has ended."""
        peer = self.peers.get(connection_id)
        return 0 if peer is None else peer.load.chars


ThreadId: TypeAlias = str

_NOBODY: Set[ConnectionId] = frozenset()
_NONE_HELD: Mapping[ConnectionId, Position] = {}


class Subscribers:
    """The subscriptions of all connections."""

    def __init__(self) -> None:
        self._of_thread: dict[ThreadId, set[ConnectionId]] = {}
        self._of_connection: dict[ConnectionId, set[ThreadId]] = {}
        self._held: dict[ThreadId, dict[ConnectionId, Position]] = {}
        """Subscribers that are sent nothing for now, and how far they know the stream."""

    @property
    def count(self) -> int:
        """Number of subscriptions."""
        return sum(map(len, self._of_thread.values()))

    def of(self, thread_id: ThreadId | None) -> Set[ConnectionId]:
        """Return the subscribers of a thread, held ones included; none for None."""
        return _NOBODY if thread_id is None else self._of_thread.get(thread_id, _NOBODY)

    def held(self, thread_id: ThreadId | None) -> Collection[ConnectionId]:
        """Return those of a thread that are sent nothing for now."""
        return _NONE_HELD if thread_id is None else self._held.get(thread_id, _NONE_HELD)

    def add(self, connection_id: ConnectionId, thread_id: ThreadId) -> None:
        """Subscribe a connection to a thread."""
        self._of_thread.setdefault(thread_id, set()).add(connection_id)
        self._of_connection.setdefault(connection_id, set()).add(thread_id)

    def hold(self, connection_id: ConnectionId, thread_id: ThreadId, position: Position) -> None:
        """Subscribe it, and send it nothing until `release`; it knows what is before `position`."""
        self.add(connection_id, thread_id)
        self._held.setdefault(thread_id, {}).setdefault(connection_id, position)

    def release(self, connection_id: ConnectionId, thread_id: ThreadId) -> Position | None:
        """Hold a connection no longer; returns how far it knows the stream, None if it was not."""
        held = self._held.get(thread_id, {})
        position = held.pop(connection_id, None)
        if not held:
            self._held.pop(thread_id, None)
        return position

    def remove(self, connection_id: ConnectionId, thread_id: ThreadId) -> bool:
        """End a subscription; False if there was none."""
        subscribers = self._of_thread.get(thread_id, set())
        if connection_id not in subscribers:
            return False
        self.release(connection_id, thread_id)
        subscribers.remove(connection_id)
        if not subscribers:
            del self._of_thread[thread_id]
        self._of_connection[connection_id].remove(thread_id)
        return True

    def remove_all(self, connection_id: ConnectionId) -> None:
        """End all subscriptions of a connection."""
        for thread_id in list(self._of_connection.get(connection_id, ())):
            self.remove(connection_id, thread_id)
        self._of_connection.pop(connection_id, None)


@dataclass(slots=True)
class ServerRequest:
    """A request that waits for its first answer."""

    id: RequestId
    thread_id: ThreadId | None
    """None: it is about no thread, and its end is not announced."""
    method: str
    params: WireModel
    asked: set[ConnectionId] = field(default_factory=set)
    """Clients that were asked and are still connected."""
    passed: dict[ConnectionId, str | None] = field(default_factory=dict)
    """Asked clients that do not know the method, with their names; others may."""
    answered: anyio.Event = field(default_factory=anyio.Event)
    result: WireModel | None = None
    """None after `answered`: the client refused or its answer has no sense."""
    answered_by: str | None = None
    """The name of the client that answered."""


TakeAnswer: TypeAlias = Callable[[Answer], None]
"""Takes the answer of a client to another node's request; does not wait."""


class ServerRequests:
    """The requests that are open."""

    def __init__(self, is_left_to_nobody: Callable[[ServerRequest], bool], first_id: int) -> None:
        """`is_left_to_nobody` says whether no connected client knows the method of a request."""
        self._is_left_to_nobody = is_left_to_nobody
        self._ids = itertools.count(first_id)
        self._open: dict[RequestId, ServerRequest] = {}
        self._passed_on: dict[RequestId, tuple[ConnectionId, TakeAnswer]] = {}
        """Requests of other nodes to clients of this one."""

    @property
    def count(self) -> int:
        """Number of server requests of this server that wait for an answer."""
        return len(self._open)

    @contextmanager
    def open(
        self, thread_id: ThreadId | None, method: str, params: WireModel
    ) -> Iterator[ServerRequest]:
        """Open a request for as long as the context lasts."""
        request = ServerRequest(next(self._ids), thread_id, method, params)
        self._open[request.id] = request
        try:
            yield request
        finally:
            del self._open[request.id]

    def pass_on(self, connection_id: ConnectionId, take: TakeAnswer) -> RequestId:
        """Return an id for another node's request to a client; `take` gets the first answer."""
        request_id = next(self._ids)
        self._passed_on[request_id] = connection_id, take
        return request_id

    def withdraw(self, request_id: RequestId) -> None:
        """Expect no answer to another node's request any more."""
        self._passed_on.pop(request_id, None)

    def send(self, request: ServerRequest, connection_id: ConnectionId, peer: Peer) -> None:
        """Send a request to one client, once, if it may be asked; never waits."""
        if peer.initialized is None or connection_id in request.asked:
            return
        if not may_be_asked(peer.initialized, request.method, request.params):
            return
        request.asked.add(connection_id)
        peer.post(
            render_request(
                request.id,
                request.method,
                request.params,
                jsonrpc=peer.initialized.jsonrpc,
                experimental=peer.initialized.experimental,
            )
        )

    def send_open(self, thread_id: ThreadId, connection_id: ConnectionId, peer: Peer) -> None:
        """Send a client the open requests about a thread."""
        for request in self._open.values():
            if request.thread_id == thread_id:
                self.send(request, connection_id, peer)

    def answer(self, connection_id: ConnectionId, peer: Peer, answer: Answer) -> None:
        """Settle a request; late answers, and those of clients not asked, are ignored.

        A client that does not know the method leaves the request to the others that are there.
        """
        passed_on = self._passed_on.get(answer.id)
        if passed_on is not None:
            asked, take = passed_on
            if asked == connection_id:
                del self._passed_on[answer.id]
                take(answer)
            return
        request = self._open.get(answer.id)
        if request is None or connection_id not in request.asked or request.answered.is_set():
            return
        name = None if peer.initialized is None else peer.initialized.info.name
        if isinstance(answer.error, dict) and answer.error.get("code") == METHOD_NOT_FOUND:
            request.passed[connection_id] = name
            if not self._is_left_to_nobody(request):
                return
        request.answered_by = name
        if answer.error is None:
            try:
                request.result = SERVER_REQUESTS[request.method].parse_result(answer.result)
            except ValidationError:
                logger.warning("connection %d: bad answer to %s", connection_id, request.method)
        request.answered.set()

    def left(self, connection_id: ConnectionId) -> None:
        """Expect no answer of a client that has disconnected."""
        for request in self._open.values():
            request.asked.discard(connection_id)
            request.passed.pop(connection_id, None)
            # Also where it was about to be asked.
            self._refuse_if_passed(request)

    def unsubscribed(self, thread_id: ThreadId) -> None:
        """Settle the requests about a thread that were left to a client which unsubscribed."""
        for request in self._open.values():
            if request.thread_id == thread_id:
                self._refuse_if_passed(request)

    def _refuse_if_passed(self, request: ServerRequest) -> None:
        if not request.answered.is_set() and self._is_left_to_nobody(request):
            request.answered_by = next(reversed(request.passed.values()), None)
            request.answered.set()


def may_be_asked(client: InitializedClient, method: str, params: WireModel) -> bool:
    """Whether a client can understand a request, by what it opted into."""
    if SERVER_REQUESTS[method].experimental or is_experimental_variant(params):
        return client.experimental
    extension = params.needs_extension if isinstance(params, Variant) else None
    return extension is None or client.has_extension(extension)


MAX_AT_ONCE = 1024
"""Messages that one thread may queue before others run."""


class EventObserver(Protocol):
    """Observer of thread events and server requests; does not wait."""

    def observe(self, event: WireModel) -> None:
        """Take an event of a thread; those of `Hub.emit_repeated` are not shown."""

    def asking(
        self, thread_id: ThreadId, request_id: RequestId, method: str, params: WireModel
    ) -> None:
        """Take a question that clients are asked."""

    def asked(
        self, thread_id: ThreadId, request_id: RequestId, method: str, *, answered: bool
    ) -> None:
        """Take a question that is settled, or was withdrawn."""


class Hub:
    """All connected clients of one server.

    Events and questions go to the same subscribers in one order, and a new one must miss none of
    either: that is why both begin here.
    """

    def __init__(
        self,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        limits: ReplayLimits | None = None,
        first_request_id: int = 0,
    ) -> None:
        """`limits` bound what is kept of each thread's events.

        Requests of servers that follow one another begin with different ids: an answer that was
        meant for the one before is none to a question of this one.
        """
        self.streams = ReplayBuffers(limits or ReplayLimits())
        self._now_ms = now_ms
        self.connections = Connections()
        self._peers = self.connections.peers
        self.subscribers = Subscribers()
        self.server_requests = ServerRequests(self._is_left_to_nobody, first_request_id)
        self.observers: list[EventObserver] = []
        """Observers of thread events and server requests, called with or without subscribers."""
        self.on_broadcast: Callable[[WireModel], None] | None = None
        """Takes each event for all clients; does not wait."""
        self._sent_since_yield = 0
        """Messages to threads with several subscribers, since others could run."""

    @contextmanager
    def connect(self, peer: Peer) -> Iterator[ConnectionId]:
        """Know a peer for as long as the context lasts; its subscriptions end with it."""
        with self.connections.opened(peer) as connection_id:
            try:
                yield connection_id
            finally:
                self.subscribers.remove_all(connection_id)
                self.server_requests.left(connection_id)

    def subscribe(self, connection_id: ConnectionId, thread_id: ThreadId) -> None:
        """Subscribe a connection to a thread, and ask it what is still open there."""
        peer = self._peers.get(connection_id)
        if peer is not None:
            self.subscribers.add(connection_id, thread_id)
            self.server_requests.send_open(thread_id, connection_id, peer)

    def hold(self, connection_id: ConnectionId, thread_id: ThreadId, position: Position) -> None:
        """Subscribe a connection, but send it nothing before `release`.

        It knows the thread's stream up to `position`, and is sent the rest then.
        """
        if connection_id in self._peers:
            self.subscribers.hold(connection_id, thread_id, position)

    def release(self, connection_id: ConnectionId, thread_id: ThreadId) -> None:
        """Send a connection what came since it was held, ask what is open, and go on from there.

        If it has missed more than is kept of the stream, the connection is given up.
        """
        position = self.subscribers.release(connection_id, thread_id)
        if position is None:
            return
        peer, stream = self._peers[connection_id], self.streams.find(thread_id)
        if stream is not None:
            if not stream.can_go_on(position):
                peer.give_up()
                return
            for message in stream.since(position.seq):
                post(peer, message, as_subscriber=True)
        self.server_requests.send_open(thread_id, connection_id, peer)

    def unsubscribe(self, connection_id: ConnectionId, thread_id: ThreadId) -> bool:
        """End a subscription; False if there was none."""
        did_subscribe = self.subscribers.remove(connection_id, thread_id)
        self.server_requests.unsubscribed(thread_id)
        return did_subscribe

    def is_subscribed(self, connection_id: ConnectionId, thread_id: ThreadId) -> bool:
        """Whether a connection is subscribed to a thread."""
        return connection_id in self.subscribers.of(thread_id)

    def has_subscribers(self, thread_id: ThreadId) -> bool:
        """Whether any connection is subscribed to the thread."""
        return bool(self.subscribers.of(thread_id))

    def can_ask(self, thread_id: ThreadId, method: str, params: WireModel) -> bool:
        """Whether any subscriber of the thread could be asked this."""
        peers = (self._peers[subscriber] for subscriber in self.subscribers.of(thread_id))
        return any(
            peer.initialized is not None and may_be_asked(peer.initialized, method, params)
            for peer in peers
        )

    # Events.

    def open_stream(self, thread_id: ThreadId) -> None:
        """Begin to number and keep what the subscribers of a thread are sent."""
        self.streams.open(thread_id)

    def close_stream(self, thread_id: ThreadId) -> None:
        """Stop to number and keep the events of a thread."""
        self.streams.close(thread_id)

    def emit(
        self,
        thread_id: ThreadId,
        *events: WireModel,
        method: str | None = None,
        more: Sequence[str] = (),
    ) -> None:
        """Send a thread's subscribers events of one type, which take half the time together.

        `method` is for types that serve several. `more` are pieces of text which came with the only
        event, a delta, and are sent as events of their own.
        """
        for observer in self.observers:
            for event in events:
                observer.observe(event)
        self._notify(self.subscribers.of(thread_id), thread_id, events, method, more)

    def emit_repeated(self, thread_id: ThreadId, events: RepeatedNotifications) -> None:
        """Send a thread's subscribers events that others are sent too; no observer is shown them.

        That takes a fifth of the time of `emit`.
        """
        stream = self.streams.find(thread_id)
        seqs = None if stream is None else stream.next_seqs(len(events))
        kept = ReplayRepeated(events, thread_id, self._now_ms(), seqs)
        if stream is not None:
            self.streams.keep(stream, [kept])
        subscribers = self.subscribers.of(thread_id)
        held = self.subscribers.held(thread_id) if stream is not None else ()
        texts: dict[Form, list[str]] = {}
        for connection_id in subscribers:
            peer = self._peers[connection_id]
            form = _form_for(peer, events.method, as_subscriber=True)
            if form is None or connection_id in held:
                continue
            if form not in texts:
                texts[form] = kept.texts(form)
            peer.post(*texts[form])
        self._count_sent(len(subscribers), len(events))

    def broadcast(self, event: WireModel) -> None:
        """Send an event to every client that has initialized.

        What is about a loaded thread is part of its stream, for its subscribers.
        """
        if self.on_broadcast is not None:
            self.on_broadcast(event)
        thread_id: ThreadId | None = getattr(event, "thread_id", None)
        told: Set[ConnectionId] = self._peers.keys()
        if self.connections.of_nodes:
            # Of other nodes' clients those who follow the thread here; the node tells all others.
            about = thread_id or getattr(getattr(event, "thread", None), "id", None)
            told = told - (self.connections.of_nodes - self.subscribers.of(about))
        self._notify(told, thread_id, [event])

    def notify(self, connection_id: ConnectionId, event: WireModel) -> None:
        """Send an event to one client, if it is still there; this is part of no stream."""
        self._notify((connection_id,), None, [event])

    def _notify(
        self,
        connection_ids: Iterable[ConnectionId],
        thread_id: ThreadId | None,
        events: Sequence[WireModel],
        method: str | None = None,
        more: Sequence[str] = (),
    ) -> None:
        """Send events of one type; `more` are pieces of text that follow the only one."""
        stream = self.streams.find(thread_id)
        method = method or METHOD_OF[type(events[0]).__name__]
        now_ms = self._now_ms()
        count = len(events) + len(more)
        seqs = [None] * count if stream is None else stream.next_seqs(count)
        own, others = seqs[: len(events)], seqs[len(events) :]
        run = [Outgoing(method, event, now_ms, seq) for event, seq in zip(events, own, strict=True)]
        run += [run[0].followed_by(piece, seq) for piece, seq in zip(more, others, strict=True)]
        if stream is not None:
            self.streams.keep(stream, run)
        subscribers = self.subscribers.of(thread_id)
        # Without a stream nothing is kept for those who are held.
        held = self.subscribers.held(thread_id) if stream is not None else ()
        for connection_id in connection_ids:
            peer = self._peers.get(connection_id)
            if peer is not None and connection_id not in held:
                post(peer, *run, as_subscriber=connection_id in subscribers)
        self._count_sent(len(subscribers), len(run))

    def _count_sent(self, subscribers: int, events: int) -> None:
        if subscribers > 1:
            self._sent_since_yield += subscribers * events

    @property
    def is_crowded(self) -> bool:
        """Whether so much was sent at once that it holds up others."""
        return self._sent_since_yield >= MAX_AT_ONCE

    async def yield_to_loop(self) -> None:
        """Yield to the event loop, so that queued messages are sent and other tasks run."""
        self._sent_since_yield = 0
        await anyio.lowlevel.checkpoint()

    # Requests of the server.

    async def ask(
        self, thread_id: ThreadId, method: str, params: WireModel
    ) -> tuple[WireModel | None, str | None]:
        """Send a request to every subscriber of a thread; return the first answer and its client.

        The answer is None where a client refused or its answer made no sense; the client is known
        by its name. With no subscriber the request stays open and goes to the next one. Waits
        without limit, for an answer or to be cancelled; the clients that saw the request are
        notified once that it is settled.
        """
        with self.server_requests.open(thread_id, method, params) as request:
            for observer in self.observers:
                observer.asking(thread_id, request.id, method, params)
            held = self.subscribers.held(thread_id)
            for connection_id in self.subscribers.of(thread_id):
                if connection_id not in held:
                    self.server_requests.send(request, connection_id, self._peers[connection_id])
            try:
                await request.answered.wait()
            finally:
                if request.asked:
                    settled = ServerRequestResolvedNotification(
                        thread_id=thread_id, request_id=request.id
                    )
                    self._notify(request.asked, thread_id, [settled])
                for observer in self.observers:
                    observer.asked(
                        thread_id, request.id, method, answered=request.answered.is_set()
                    )
        return request.result, request.answered_by

    async def ask_client(
        self, method: str, params: WireModel, preferred: ConnectionId
    ) -> WireModel | None:
        """Send a request about no thread to one client, or to every client when that one has gone.

        Returns the first answer; None when nobody can be asked, or a client refused it or answered
        nonsense. Waits without limit, for an answer or to be cancelled.
        """
        asked = (preferred,) if preferred in self._peers else tuple(self._peers)
        with self.server_requests.open(None, method, params) as request:
            for connection_id in asked:
                self.server_requests.send(request, connection_id, self._peers[connection_id])
            if request.asked:
                await request.answered.wait()
        return request.result

    def answer(self, connection_id: ConnectionId, answer: Answer) -> None:
        """Take the answer of a client to a request; see ServerRequests.answer."""
        self.server_requests.answer(connection_id, self._peers[connection_id], answer)

    def _is_left_to_nobody(self, request: ServerRequest) -> bool:
        """Whether no client that is there knows the method of a request.

        One about a thread waits where nobody is there, and for who is about to be asked.
        """
        left = request.asked - request.passed.keys()
        if request.thread_id is None:
            return not left
        subscribers = self.subscribers.of(request.thread_id)
        others = (
            self._peers[one].initialized for one in subscribers - request.passed.keys() - left
        )
        return (
            not subscribers.isdisjoint(request.passed)
            and subscribers.isdisjoint(left)
            and not any(
                session is not None and may_be_asked(session, request.method, request.params)
                for session in others
            )
        )
