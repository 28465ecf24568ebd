"""Requests of the server to its clients: sent to each, settled by the first answer.

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


class ServerRequests:
    """The requests that are open."""

    def __init__(self, is_left_to_nobody: Callable[[ServerRequest], bool]) -> None:
        """`is_left_to_nobody` says whether no connected client knows the method of a request."""
        self._is_left_to_nobody = is_left_to_nobody
        self._ids = itertools.count()
        self._open: dict[RequestId, ServerRequest] = {}

    @property
    def count(self) -> int:
        """Number of server requests that wait for an answer."""
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

    def send(self, request: ServerRequest, connection_id: ConnectionId, peer: Peer) -> None:
        """Send a request to one client, once, if it may be asked; never waits."""
        if peer.session is None or connection_id in request.asked:
            return
        if not may_be_asked(peer.session, request.method, request.params):
            return
        request.asked.add(connection_id)
        peer.post(
            render_request(
                request.id,
                request.method,
                request.params,
                jsonrpc=peer.session.jsonrpc,
                experimental=peer.session.experimental,
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
        request = self._open.get(answer.id)
        if request is None or connection_id not in request.asked or request.answered.is_set():
            return
        name = None if peer.session is None else peer.session.info.name
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


def may_be_asked(session: ClientSession, method: str, params: WireModel) -> bool:
    """Whether a client can understand a request, by what it opted into."""
    if SERVER_REQUESTS[method].experimental or is_experimental_variant(params):
        return session.experimental
    extension = params.needs_extension if isinstance(params, Variant) else None
    return extension is None or session.has_extension(extension)
