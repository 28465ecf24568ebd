"""Who is connected, who listens to which thread, and what clients were asked.

Every event of a loaded thread has a number and is kept for a while, so that a client that was away
can be told what it missed. Questions go to every listener of a thread; the first answer wins; a
question that nobody can answer waits for the next listener.
Source: docs/wire.md, "Replay", "Server requests".
"""

import itertools
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import anyio
import anyio.lowlevel
from pydantic import ValidationError

from app_server.rpc.context import ClientSession, ConnectionId
from app_server.rpc.outgoing import Delta, Message, Outgoing
from app_server.rpc.replay_buffer import Position, ReplayLimits
from app_server.rpc.replay_buffers import ReplayBuffers
from protocol.envelope import Answer, RequestId, render_request
from protocol.errors import METHOD_NOT_FOUND
from protocol.gate import is_experimental_variant
from protocol.methods import METHOD_OF, NOTIFICATIONS, SERVER_REQUESTS
from protocol.model import Variant, WireModel
from protocol.threads import ServerRequestResolvedNotification

logger = logging.getLogger(__name__)

ThreadId: TypeAlias = str

MAX_AT_ONCE = 1024
"""Messages that one thread may queue before others run."""


class Peer(Protocol):
    """A connection, as the hub sees it."""

    session: ClientSession | None

    @property
    def is_behind(self) -> bool:
        """Whether so much waits that pieces of one text are joined."""

    def post(self, text: str, delta: Delta | None = None) -> None:
        """Queue a message; never waits."""

    def give_up(self) -> None:
        """Close the connection: it has missed something that cannot be sent again."""

    @property
    def load(self) -> "PeerLoad":
        """What it has to do."""


class PeerLoad(Protocol):
    """What a connection has to do, as far as the hub asks."""

    @property
    def chars(self) -> int:
        """That wait to be sent."""


@dataclass(slots=True)
class Question:
    """A request of ours that waits for its first answer."""

    id: RequestId
    thread_id: ThreadId | None
    """None: it is about no thread, and its end is not announced."""
    method: str
    params: WireModel
    asked: set[ConnectionId] = field(default_factory=set)
    passed: set[ConnectionId] = field(default_factory=set)
    """Those who do not know the method: others may."""
    answered: anyio.Event = field(default_factory=anyio.Event)
    result: WireModel | None = None
    """None after `answered`: the client refused or its answer has no sense."""
    answered_by: str | None = None
    """The name of the client that answered."""


class EventObserver(Protocol):
    """Who wants to know what threads tell their clients; does not wait."""

    def observe(self, event: WireModel) -> None:
        """Take an event of a thread; deltas are not shown."""

    def asked(self, method: str, *, answered: bool) -> None:
        """Take a question that is settled, or was withdrawn."""


class Hub:
    """All connected clients of one server.

    Events and questions go to the same listeners in one order, and a listener that joins must miss
    none of either: that is why both are in one class.
    """

    def __init__(
        self,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        limits: ReplayLimits | None = None,
    ) -> None:
        """`limits` bound what is kept of each thread's events."""
        self.streams = ReplayBuffers(limits or ReplayLimits())
        self._now_ms = now_ms
        self._connection_ids = itertools.count(1)
        self._question_ids = itertools.count()
        self._peers: dict[ConnectionId, Peer] = {}
        self._subscriptions: dict[ConnectionId, set[ThreadId]] = {}
        self._listeners: dict[ThreadId, set[ConnectionId]] = {}
        self._when_gone: dict[ConnectionId, dict[Callable[[ConnectionId], None], None]] = {}
        self._held: dict[ThreadId, dict[ConnectionId, Position]] = {}
        """Listeners that are sent nothing for now, and how far they know the stream."""
        self.observer: EventObserver | None = None
        """Is shown the events and questions of threads, whoever listens."""
        self._questions: dict[RequestId, Question] = {}
        self._sent_since_yield = 0
        """Messages to threads with several listeners, since others could run."""

    @contextmanager
    def connect(self, peer: Peer) -> Iterator[ConnectionId]:
        """Know a peer for as long as the context lasts; its subscriptions end with it."""
        connection_id = next(self._connection_ids)
        self._peers[connection_id] = peer
        self._subscriptions[connection_id] = set()
        self._when_gone[connection_id] = {}
        try:
            yield connection_id
        finally:
            for thread_id in list(self._subscriptions[connection_id]):
                self.unsubscribe(connection_id, thread_id)
            del self._peers[connection_id], self._subscriptions[connection_id]
            self.leave(connection_id)
            del self._when_gone[connection_id]

    def leave(self, connection_id: ConnectionId) -> None:
        """Run what was to be run when a connection has ended."""
        actions = self._when_gone[connection_id]
        while actions:
            action = next(iter(actions))
            del actions[action]
            action(connection_id)

    def waiting_chars(self, connection_id: ConnectionId) -> int:
        """Say how much waits to be sent to a connection; 0 once it has ended."""
        peer = self._peers.get(connection_id)
        return 0 if peer is None else peer.load.chars

    def when_gone(
        self, connection_id: ConnectionId, action: Callable[[ConnectionId], None]
    ) -> None:
        """Run `action`, which does not wait, when a connection has ended; at once if it has.

        The same action is run once, however often it was given.
        """
        if connection_id in self._when_gone:
            self._when_gone[connection_id][action] = None
        else:
            action(connection_id)

    def subscribe(self, connection_id: ConnectionId, thread_id: ThreadId) -> None:
        """Let a connection hear of a thread, and ask it what is still open there."""
        if connection_id not in self._peers:
            return
        self._listen(connection_id, thread_id)
        self._put_open_questions(connection_id, thread_id)

    def _listen(self, connection_id: ConnectionId, thread_id: ThreadId) -> None:
        self._listeners.setdefault(thread_id, set()).add(connection_id)
        self._subscriptions[connection_id].add(thread_id)

    def hold(self, connection_id: ConnectionId, thread_id: ThreadId, position: Position) -> None:
        """Subscribe a connection, but send it nothing before `release`.

        It knows the thread's stream up to `position`, and hears of the rest then.
        """
        if connection_id in self._peers:
            self._listen(connection_id, thread_id)
            self._held.setdefault(thread_id, {}).setdefault(connection_id, position)

    def release(self, connection_id: ConnectionId, thread_id: ThreadId) -> None:
        """Tell a connection what came since it was held, ask what is open, and go on from there.

        If it has missed more than is kept of the stream, the connection is given up.
        """
        position = self._held.get(thread_id, {}).get(connection_id)
        if position is None:
            return
        self._drop_hold(connection_id, thread_id)
        peer, stream = self._peers[connection_id], self.streams.find(thread_id)
        if stream is not None:
            if not stream.can_go_on(position):
                peer.give_up()
                return
            for message in stream.since(position.seq):
                _post(peer, message, as_listener=True)
        self._put_open_questions(connection_id, thread_id)

    def _drop_hold(self, connection_id: ConnectionId, thread_id: ThreadId) -> None:
        held = self._held.get(thread_id, {})
        held.pop(connection_id, None)
        if not held:
            self._held.pop(thread_id, None)

    def unsubscribe(self, connection_id: ConnectionId, thread_id: ThreadId) -> bool:
        """Let a connection hear no more of a thread; False if it did not listen."""
        listeners = self._listeners.get(thread_id, set())
        if connection_id not in listeners:
            return False
        self._drop_hold(connection_id, thread_id)
        listeners.remove(connection_id)
        self._subscriptions[connection_id].remove(thread_id)
        if not listeners:
            del self._listeners[thread_id]
        return True

    def listens(self, connection_id: ConnectionId, thread_id: ThreadId) -> bool:
        """Whether a connection hears of a thread."""
        return connection_id in self._listeners.get(thread_id, ())

    @property
    def open_questions(self) -> int:
        """How many questions wait for an answer."""
        return len(self._questions)

    @property
    def subscriptions(self) -> int:
        """How many times any connection listens to any thread."""
        return sum(map(len, self._listeners.values()))

    def has_listeners(self, thread_id: ThreadId) -> bool:
        """Whether any connection listens to the thread."""
        return thread_id in self._listeners

    def can_ask(self, thread_id: ThreadId, method: str, params: WireModel) -> bool:
        """Whether any listener of the thread could be asked this."""
        peers = (self._peers[listener] for listener in self._listeners.get(thread_id, ()))
        return any(
            peer.session is not None and _may_be_asked(peer.session, method, params)
            for peer in peers
        )

    # Events.

    def open_stream(self, thread_id: ThreadId) -> None:
        """Begin to number and keep what the listeners of a thread are sent."""
        self.streams.open(thread_id)

    def close_stream(self, thread_id: ThreadId) -> None:
        """Stop to number and keep the events of a thread."""
        self.streams.close(thread_id)

    def emit(self, thread_id: ThreadId, event: WireModel, method: str | None = None) -> None:
        """Tell the listeners of a thread; `method` is for types that serve several."""
        if self.observer is not None:
            self.observer.observe(event)
        self._notify(self._listeners.get(thread_id, ()), thread_id, event, method)

    def emit_run(self, thread_id: ThreadId, first: WireModel, more: Sequence[str]) -> None:
        """Tell the listeners of a thread a delta, and the pieces of its text that came with it.

        Each is an event of its own, as `emit` would send it, in half the time.
        """
        stream = self.streams.find(thread_id)
        seq = None if stream is None else stream.next_seq()
        outgoing = Outgoing(METHOD_OF[type(first).__name__], first, self._now_ms(), seq)
        run = [outgoing]
        if stream is None:
            run += [outgoing.followed_by(piece, None) for piece in more]
        else:
            self.streams.keep(stream, outgoing)
            for piece in more:
                run.append(outgoing.followed_by(piece, stream.next_seq()))
                self.streams.keep(stream, run[-1])
        listeners = self._listeners.get(thread_id, ())
        held = self._held.get(thread_id, ()) if stream is not None else ()
        for connection_id in listeners:
            peer = self._peers.get(connection_id)
            if peer is not None and connection_id not in held:
                _post(peer, *run, as_listener=True)
        if len(listeners) > 1:
            self._sent_since_yield += len(listeners) * len(run)

    def broadcast(self, event: WireModel) -> None:
        """Tell every client that has initialized.

        What is about a loaded thread is part of its stream, for those who listen to it.
        """
        thread_id: ThreadId | None = getattr(event, "thread_id", None)
        self._notify(self._peers, thread_id, event)

    def notify(self, connection_id: ConnectionId, event: WireModel) -> None:
        """Tell one client, if it is still there; this is part of no stream."""
        self._notify((connection_id,), None, event)

    def _notify(
        self,
        connection_ids: Iterable[ConnectionId],
        thread_id: ThreadId | None,
        event: WireModel,
        method: str | None = None,
    ) -> None:
        stream = self.streams.find(thread_id)
        outgoing = Outgoing(
            method or METHOD_OF[type(event).__name__],
            event,
            self._now_ms(),
            None if stream is None else stream.next_seq(),
        )
        listeners = self._listeners.get(thread_id, ()) if thread_id is not None else ()
        # Without a stream nothing is kept for those who are held.
        held = self._held.get(thread_id, ()) if stream is not None and thread_id is not None else ()
        for connection_id in connection_ids:
            peer = self._peers.get(connection_id)
            if peer is not None and connection_id not in held:
                _post(peer, outgoing, as_listener=connection_id in listeners)
        if len(listeners) > 1:
            self._sent_since_yield += len(listeners)
        if stream is not None:
            self.streams.keep(stream, outgoing)

    @property
    def is_crowded(self) -> bool:
        """Whether so much was sent at once that it holds up others."""
        return self._sent_since_yield >= MAX_AT_ONCE

    async def yield_to_loop(self) -> None:
        """Let other tasks run, first those that send the queued messages."""
        self._sent_since_yield = 0
        await anyio.lowlevel.checkpoint()

    # Questions.

    async def ask(self, thread_id: ThreadId, method: str, params: WireModel) -> WireModel | None:
        """Put a question to every listener of a thread and return the first answer.

        None means that a client refused it or answered nonsense. With no listener the question
        stays open and goes to the next one. Waits without limit, for an answer or to be cancelled;
        whoever saw the question hears once that it is settled.
        """
        return (await self.ask_by_name(thread_id, method, params))[0]

    async def ask_by_name(
        self, thread_id: ThreadId, method: str, params: WireModel
    ) -> tuple[WireModel | None, str | None]:
        """Do as `ask` does, and return with the answer the name of the client that gave it."""
        with self._asking(thread_id, method, params) as question:
            held = self._held.get(thread_id, ())
            for connection_id in self._listeners.get(thread_id, ()):
                if connection_id not in held:
                    self._put(question, connection_id)
            try:
                await question.answered.wait()
            finally:
                self._notify_settled(question, thread_id)
                if self.observer is not None:
                    self.observer.asked(method, answered=question.answered.is_set())
        return question.result, question.answered_by

    def _notify_settled(self, question: Question, thread_id: ThreadId) -> None:
        event = ServerRequestResolvedNotification(thread_id=thread_id, request_id=question.id)
        if question.asked:
            self._notify(question.asked, thread_id, event)

    async def ask_client(
        self, method: str, params: WireModel, preferred: ConnectionId
    ) -> WireModel | None:
        """Put a question about no thread to one client, or to every client when that one has gone.

        Returns the first answer; None when nobody can be asked, or a client refused it or answered
        nonsense. Waits without limit, for an answer or to be cancelled.
        """
        asked = (preferred,) if preferred in self._peers else tuple(self._peers)
        with self._asking(None, method, params) as question:
            for connection_id in asked:
                self._put(question, connection_id)
            if question.asked:
                await question.answered.wait()
        return question.result

    @contextmanager
    def _asking(
        self, thread_id: ThreadId | None, method: str, params: WireModel
    ) -> Iterator[Question]:
        question = Question(next(self._question_ids), thread_id, method, params)
        self._questions[question.id] = question
        try:
            yield question
        finally:
            del self._questions[question.id]

    def _put_open_questions(self, connection_id: ConnectionId, thread_id: ThreadId) -> None:
        for question in self._questions.values():
            if question.thread_id == thread_id:
                self._put(question, connection_id)

    def _put(self, question: Question, connection_id: ConnectionId) -> None:
        peer = self._peers[connection_id]
        if peer.session is None or connection_id in question.asked:
            return
        if not _may_be_asked(peer.session, question.method, question.params):
            return
        question.asked.add(connection_id)
        peer.post(
            render_request(
                question.id,
                question.method,
                question.params,
                jsonrpc=peer.session.jsonrpc,
                experimental=peer.session.experimental,
            )
        )

    def answer(self, connection_id: ConnectionId, answer: Answer) -> None:
        """Settle a question; late answers, and those of clients not asked, are nothing.

        A client that does not know the method leaves the question to the others.
        """
        question = self._questions.get(answer.id)
        if question is None or connection_id not in question.asked or question.answered.is_set():
            return
        if isinstance(answer.error, dict) and answer.error.get("code") == METHOD_NOT_FOUND:
            question.passed.add(connection_id)
            if any(one in self._peers for one in question.asked - question.passed):
                return
        session = self._peers[connection_id].session
        question.answered_by = None if session is None else session.info.name
        if answer.error is None:
            try:
                question.result = SERVER_REQUESTS[question.method].parse_result(answer.result)
            except ValidationError:
                logger.warning("connection %d: bad answer to %s", connection_id, question.method)
        question.answered.set()


def _may_be_asked(session: ClientSession, method: str, params: WireModel) -> bool:
    if SERVER_REQUESTS[method].experimental or is_experimental_variant(params):
        return session.experimental
    extension = params.needs_extension if isinstance(params, Variant) else None
    return extension is None or session.has_extension(extension)


def _post(peer: Peer, *messages: Message, as_listener: bool) -> None:
    """Queue messages of one method."""
    session = peer.session
    if session is None or messages[0].method in session.opted_out:
        return
    spec = NOTIFICATIONS[messages[0].method]
    if (spec.experimental or spec.opt_in) and not session.experimental:
        return
    form = session.experimental, session.jsonrpc, as_listener and session.experimental
    for message in messages:
        # The form that can be joined is needed by who falls behind alone.
        peer.post(message.text(form), message.delta(form) if peer.is_behind else None)
