"""Hub of connections, subscriptions to threads, and open server requests.

Every event of a loaded thread has a number and is kept for a while, so that a client that was away
can be sent what it missed. Questions go to every subscriber of a thread; the first answer wins; a
question that nobody can answer waits for the next subscriber.
Source: docs/wire.md, "Replay", "Server requests".
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import anyio.lowlevel

from app_server.rpc.context import ConnectionId
from app_server.rpc.hub.connections import Connections
from app_server.rpc.hub.peer import Peer, post
from app_server.rpc.hub.replay_buffer import Position, ReplayLimits
from app_server.rpc.hub.replay_buffers import ReplayBuffers
from app_server.rpc.hub.server_requests import ServerRequest, ServerRequests, may_be_asked
from app_server.rpc.hub.subscribers import Subscribers, ThreadId
from app_server.rpc.outgoing import Outgoing
from protocol.contract.methods import METHOD_OF
from protocol.jsonrpc.envelope import Answer
from protocol.model import WireModel
from protocol.threads.notifications import ServerRequestResolvedNotification

MAX_AT_ONCE = 1024
"""Messages that one thread may queue before others run."""


class EventObserver(Protocol):
    """Observer of thread events and server requests; does not wait."""

    def observe(self, event: WireModel) -> None:
        """Take an event of a thread; deltas are not shown."""

    def asked(self, method: str, *, answered: bool) -> None:
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
    ) -> None:
        """`limits` bound what is kept of each thread's events."""
        self.streams = ReplayBuffers(limits or ReplayLimits())
        self._now_ms = now_ms
        self.connections = Connections()
        self._peers = self.connections.peers
        self.subscribers = Subscribers()
        self.server_requests = ServerRequests(self._is_left_to_nobody)
        self.observer: EventObserver | None = None
        """Observer of thread events and server requests, called with or without subscribers."""
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

    def leave(self, connection_id: ConnectionId) -> None:
        """End what belongs to a client that has gone; its requests may still be worked on."""
        self.connections.end(connection_id)

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
            peer.session is not None and may_be_asked(peer.session, method, params)
            for peer in peers
        )

    # Events.

    def open_stream(self, thread_id: ThreadId) -> None:
        """Begin to number and keep what the subscribers of a thread are sent."""
        self.streams.open(thread_id)

    def close_stream(self, thread_id: ThreadId) -> None:
        """Stop to number and keep the events of a thread."""
        self.streams.close(thread_id)

    def emit(self, thread_id: ThreadId, event: WireModel, method: str | None = None) -> None:
        """Send an event to a thread's subscribers; `method` is for types that serve several."""
        if self.observer is not None:
            self.observer.observe(event)
        self._notify(self.subscribers.of(thread_id), thread_id, event, method)

    def emit_run(self, thread_id: ThreadId, first: WireModel, more: Sequence[str]) -> None:
        """Send the subscribers of a thread a delta, and the pieces of its text that came with it.

        Each is an event of its own, as `emit` would send it, in half the time.
        """
        self._notify(self.subscribers.of(thread_id), thread_id, first, more=more)

    def broadcast(self, event: WireModel) -> None:
        """Send an event to every client that has initialized.

        What is about a loaded thread is part of its stream, for its subscribers.
        """
        thread_id: ThreadId | None = getattr(event, "thread_id", None)
        self._notify(self._peers, thread_id, event)

    def notify(self, connection_id: ConnectionId, event: WireModel) -> None:
        """Send an event to one client, if it is still there; this is part of no stream."""
        self._notify((connection_id,), None, event)

    def _notify(
        self,
        connection_ids: Iterable[ConnectionId],
        thread_id: ThreadId | None,
        event: WireModel,
        method: str | None = None,
        more: Sequence[str] = (),
    ) -> None:
        stream = self.streams.find(thread_id)
        seq = None if stream is None else stream.next_seq()
        method = method or METHOD_OF[type(event).__name__]
        run = [Outgoing(method, event, self._now_ms(), seq)]
        if stream is not None:
            self.streams.keep(stream, run[0])
        for piece in more:
            run.append(run[0].followed_by(piece, None if stream is None else stream.next_seq()))
            if stream is not None:
                self.streams.keep(stream, run[-1])
        subscribers = self.subscribers.of(thread_id)
        # Without a stream nothing is kept for those who are held.
        held = self.subscribers.held(thread_id) if stream is not None else ()
        for connection_id in connection_ids:
            peer = self._peers.get(connection_id)
            if peer is not None and connection_id not in held:
                post(peer, *run, as_subscriber=connection_id in subscribers)
        if len(subscribers) > 1:
            self._sent_since_yield += len(subscribers) * len(run)

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
                    self._notify(request.asked, thread_id, settled)
                if self.observer is not None:
                    self.observer.asked(method, answered=request.answered.is_set())
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
        others = (self._peers[one].session for one in subscribers - request.passed.keys() - left)
        return (
            not subscribers.isdisjoint(request.passed)
            and subscribers.isdisjoint(left)
            and not any(
                session is not None and may_be_asked(session, request.method, request.params)
                for session in others
            )
        )
