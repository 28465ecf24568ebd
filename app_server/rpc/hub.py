"""Who is connected, who listens to which thread, and what clients were asked.

Events are rendered once for each way of rendering (with or without experimental members, with or
without `jsonrpc`), not once for each client. Questions go to every listener of a thread; the first
answer wins; a question that nobody can answer waits for the next listener.
Source: docs/wire.md, "Server requests".
"""

import itertools
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import anyio
from pydantic import ValidationError

from app_server.rpc.context import ClientSession, ConnectionId
from app_server.rpc.outbox import Delta
from protocol.envelope import Answer, RequestId, render_notification, render_request
from protocol.gate import is_experimental_variant
from protocol.items import (
    AgentMessageDeltaNotification,
    ReasoningSummaryTextDeltaNotification,
    ReasoningTextDeltaNotification,
)
from protocol.methods import METHOD_OF, NOTIFICATIONS, SERVER_REQUESTS
from protocol.model import Variant, WireModel
from protocol.threads import ServerRequestResolvedNotification

logger = logging.getLogger(__name__)

ThreadId: TypeAlias = str

DELTAS = (
    AgentMessageDeltaNotification,
    ReasoningSummaryTextDeltaNotification,
    ReasoningTextDeltaNotification,
)


class Peer(Protocol):
    """A connection, as the hub sees it."""

    session: ClientSession | None

    def post(self, text: str, delta: Delta | None = None) -> None:
        """Queue a message; never waits."""


@dataclass(slots=True)
class Question:
    """A request of ours that waits for its first answer."""

    id: RequestId
    thread_id: ThreadId | None
    """None: it is about no thread, and its end is not announced."""
    method: str
    params: WireModel
    asked: set[ConnectionId] = field(default_factory=set)
    answered: anyio.Event = field(default_factory=anyio.Event)
    result: WireModel | None = None
    """None after `answered`: the client refused or its answer has no sense."""


class Hub:
    """All connected clients of one server."""

    def __init__(self, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._now_ms = now_ms
        self._connection_ids = itertools.count(1)
        self._question_ids = itertools.count()
        self._peers: dict[ConnectionId, Peer] = {}
        self._subscriptions: dict[ConnectionId, set[ThreadId]] = {}
        self._listeners: dict[ThreadId, set[ConnectionId]] = {}
        self._questions: dict[RequestId, Question] = {}

    @contextmanager
    def connect(self, peer: Peer) -> Iterator[ConnectionId]:
        """Know a peer for as long as the context lasts; its subscriptions end with it."""
        connection_id = next(self._connection_ids)
        self._peers[connection_id] = peer
        self._subscriptions[connection_id] = set()
        try:
            yield connection_id
        finally:
            for thread_id in list(self._subscriptions[connection_id]):
                self.unsubscribe(connection_id, thread_id)
            del self._peers[connection_id], self._subscriptions[connection_id]

    def subscribe(self, connection_id: ConnectionId, thread_id: ThreadId) -> None:
        """Let a connection hear of a thread, and ask it what is still open there."""
        if connection_id not in self._peers:
            return
        self._listeners.setdefault(thread_id, set()).add(connection_id)
        self._subscriptions[connection_id].add(thread_id)
        for question in self._questions.values():
            if question.thread_id == thread_id:
                self._put(question, connection_id)

    def unsubscribe(self, connection_id: ConnectionId, thread_id: ThreadId) -> bool:
        """Let a connection hear no more of a thread; False if it did not listen."""
        listeners = self._listeners.get(thread_id, set())
        if connection_id not in listeners:
            return False
        listeners.remove(connection_id)
        self._subscriptions[connection_id].remove(thread_id)
        if not listeners:
            del self._listeners[thread_id]
        return True

    def listens(self, connection_id: ConnectionId, thread_id: ThreadId) -> bool:
        """Whether a connection hears of a thread."""
        return connection_id in self._listeners.get(thread_id, ())

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

    def emit(self, thread_id: ThreadId, event: WireModel, method: str | None = None) -> None:
        """Tell the listeners of a thread; `method` is for types that serve several."""
        self._send(self._listeners.get(thread_id, ()), event, method)

    def broadcast(self, event: WireModel) -> None:
        """Tell every client that has initialized."""
        self._send(self._peers, event)

    def tell(self, connection_id: ConnectionId, event: WireModel) -> None:
        """Tell one client, if it is still there."""
        self._send((connection_id,), event)

    def _send(
        self,
        connection_ids: Iterable[ConnectionId],
        event: WireModel,
        method: str | None = None,
    ) -> None:
        method = method or METHOD_OF[type(event).__name__]
        at_ms = self._now_ms()
        texts: dict[tuple[bool, bool], str] = {}
        for connection_id in connection_ids:
            peer = self._peers.get(connection_id)
            session = peer.session if peer is not None else None
            if peer is None or session is None or method in session.opted_out:
                continue
            if NOTIFICATIONS[method].experimental and not session.experimental:
                continue
            form = session.experimental, session.jsonrpc
            text = texts.get(form)
            if text is None:
                text = texts[form] = _render(method, event, at_ms, *form)
            delta = _delta(method, event, at_ms, form) if isinstance(event, DELTAS) else None
            peer.post(text, delta)

    async def ask(self, thread_id: ThreadId, method: str, params: WireModel) -> WireModel | None:
        """Put a question to every listener of a thread and return the first answer.

        None means that a client refused it or answered nonsense. With no listener the question
        stays open and goes to the next one. Waits without limit, for an answer or to be cancelled;
        whoever saw the question hears once that it is settled.
        """
        with self._asking(thread_id, method, params) as question:
            for connection_id in self._listeners.get(thread_id, ()):
                self._put(question, connection_id)
            try:
                await question.answered.wait()
            finally:
                resolved = ServerRequestResolvedNotification(
                    thread_id=thread_id, request_id=question.id
                )
                self._send(question.asked, resolved)
        return question.result

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
        """Settle a question; late answers, and those of clients not asked, are nothing."""
        question = self._questions.get(answer.id)
        if question is None or connection_id not in question.asked or question.answered.is_set():
            return
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


def _render(method: str, event: WireModel, at_ms: int, experimental: bool, jsonrpc: bool) -> str:
    return render_notification(method, event, at_ms, jsonrpc=jsonrpc, experimental=experimental)


def _delta(method: str, event: WireModel, at_ms: int, form: tuple[bool, bool]) -> Delta:
    values = dict(event)
    piece = values.pop("delta")

    def render(text: str) -> str:
        return _render(method, event.model_copy(update={"delta": text}), at_ms, *form)

    return Delta((method, *values.values()), [piece], render)
