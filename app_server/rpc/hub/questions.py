"""Questions of the server to its clients: put to one after the other, settled by the first answer.

Source: docs/wire.md, "Server requests".
"""

import itertools
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import anyio
from pydantic import ValidationError

from app_server.rpc.context import ClientSession, ConnectionId
from app_server.rpc.hub.peer import Peer
from app_server.rpc.hub.subscribers import ThreadId
from protocol.contract.gate import is_experimental_variant
from protocol.contract.methods import SERVER_REQUESTS
from protocol.jsonrpc.envelope import Answer, RequestId, render_request
from protocol.jsonrpc.errors import METHOD_NOT_FOUND
from protocol.model import Variant, WireModel

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Question:
    """A request of ours that waits for its first answer."""

    id: RequestId
    thread_id: ThreadId | None
    """None: it is about no thread, and its end is not announced."""
    method: str
    params: WireModel
    asked: set[ConnectionId] = field(default_factory=set)
    """Those who are still connected."""
    passed: dict[ConnectionId, str | None] = field(default_factory=dict)
    """Those of them who do not know the method, with their names: others may."""
    answered: anyio.Event = field(default_factory=anyio.Event)
    result: WireModel | None = None
    """None after `answered`: the client refused or its answer has no sense."""
    answered_by: str | None = None
    """The name of the client that answered."""


class Questions:
    """The questions that are open."""

    def __init__(self, is_left_to_nobody: Callable[[Question], bool]) -> None:
        """`is_left_to_nobody` says whether all who are there have passed a question on."""
        self._is_left_to_nobody = is_left_to_nobody
        self._ids = itertools.count()
        self._open: dict[RequestId, Question] = {}

    @property
    def count(self) -> int:
        """How many wait for an answer."""
        return len(self._open)

    @contextmanager
    def opened(
        self, thread_id: ThreadId | None, method: str, params: WireModel
    ) -> Iterator[Question]:
        """Make a question that is open for as long as the context lasts."""
        question = Question(next(self._ids), thread_id, method, params)
        self._open[question.id] = question
        try:
            yield question
        finally:
            del self._open[question.id]

    def put(self, question: Question, connection_id: ConnectionId, peer: Peer) -> None:
        """Ask one client, once, if it may be asked; never waits."""
        if peer.session is None or connection_id in question.asked:
            return
        if not may_be_asked(peer.session, question.method, question.params):
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

    def put_open(self, thread_id: ThreadId, connection_id: ConnectionId, peer: Peer) -> None:
        """Ask a client what is open about a thread."""
        for question in self._open.values():
            if question.thread_id == thread_id:
                self.put(question, connection_id, peer)

    def answer(self, connection_id: ConnectionId, peer: Peer, answer: Answer) -> None:
        """Settle a question; late answers, and those of clients not asked, are nothing.

        A client that does not know the method leaves the question to the others that are there.
        """
        question = self._open.get(answer.id)
        if question is None or connection_id not in question.asked or question.answered.is_set():
            return
        name = None if peer.session is None else peer.session.info.name
        if isinstance(answer.error, dict) and answer.error.get("code") == METHOD_NOT_FOUND:
            question.passed[connection_id] = name
            if not self._is_left_to_nobody(question):
                return
        question.answered_by = name
        if answer.error is None:
            try:
                question.result = SERVER_REQUESTS[question.method].parse_result(answer.result)
            except ValidationError:
                logger.warning("connection %d: bad answer to %s", connection_id, question.method)
        question.answered.set()

    def left(self, connection_id: ConnectionId) -> None:
        """Expect no answer of a client any more: it has gone."""
        for question in self._open.values():
            question.asked.discard(connection_id)
            question.passed.pop(connection_id, None)
            # Also where it was about to be asked.
            self._refuse_if_passed(question)

    def unsubscribed(self, thread_id: ThreadId) -> None:
        """Look again at what is open about a thread that a client is no longer subscribed to."""
        for question in self._open.values():
            if question.thread_id == thread_id:
                self._refuse_if_passed(question)

    def _refuse_if_passed(self, question: Question) -> None:
        if not question.answered.is_set() and self._is_left_to_nobody(question):
            question.answered_by = next(reversed(question.passed.values()), None)
            question.answered.set()


def may_be_asked(session: ClientSession, method: str, params: WireModel) -> bool:
    """Whether a client can understand a question, by what it opted into."""
    if SERVER_REQUESTS[method].experimental or is_experimental_variant(params):
        return session.experimental
    extension = params.needs_extension if isinstance(params, Variant) else None
    return extension is None or session.has_extension(extension)
