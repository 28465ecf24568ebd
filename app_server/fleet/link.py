"""Link of one client to the node that owns some of its threads: frames, as they are.

Requests have ids of the link's own. Answers get the client's id back, and requests of the node to
the client an id of this node. What the node sends behind an answer stays behind it.
Source: docs/scale.md, "Requests for other nodes".
"""

import asyncio
import itertools
import logging
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

import anyio
from pydantic_core import from_json, to_json

from app_server.peer.node import NodeSocket, NodeUnreachable
from app_server.rpc.context import ConnectionId, RequestContext
from app_server.rpc.hub import Hub
from app_server.threads.owners import Owner
from protocol.jsonrpc.envelope import Answer, Request, RequestId
from protocol.model import Json, JsonObject
from protocol.threads.notifications import ServerRequestResolvedNotification

logger = logging.getLogger(__name__)

MAX_HELD_CHARS = 16 * 1024 * 1024
"""Of what waits behind an answer; beyond it nothing does."""

MOVED = "ownerMoved"
"""Word of the error of a node that does not own the thread; no client sees it."""

_ANSWER = re.compile(r'(\{(?:"jsonrpc":"2\.0",)?"id":)(\d+)(,"(result|error)":)')
_SENT = re.compile(r'\{(?:"jsonrpc":"2\.0",)?"method":"([^"]+)",(?:"id":(\d+),)?')
"""Heads of the messages of an app-server, whose members have one order."""


class LinkLost(Exception):
    """The node has gone, and whether it did what was asked is not known."""


class OwnerMoved(Exception):
    """The node does not own the thread any more, and did nothing."""


@dataclass(slots=True)
class Followed:
    """What a client knows of a thread's newest turn."""

    turn_id: str | None = None
    is_open: bool = False
    completed: set[str] = field(default_factory=set)
    """Ids of the items of this turn that it has seen completed."""


@dataclass(slots=True)
class _Call:
    request: Request
    answer: asyncio.Future[tuple[str, bool]]
    """Its text for the client, and whether it is an error."""


@dataclass(frozen=True, slots=True)
class LinkEnd:
    """The client at this node's end of a link."""

    hub: Hub
    connection_id: ConnectionId
    jsonrpc: bool

    def post(self, text: str) -> None:
        """Send the client a frame; never waits."""
        peer = self.hub.connections.peers.get(self.connection_id)
        if peer is not None:
            peer.post(text)

    async def wait_for_room(self) -> None:
        """Wait while the client reads too slowly."""
        peer = self.hub.connections.peers.get(self.connection_id)
        if peer is not None and peer.is_behind:
            await peer.wait_for_room()


class NodeLink:
    """Conversation of one client with one node."""

    def __init__(self, owner: Owner, socket: NodeSocket, end: LinkEnd) -> None:
        self.owner = owner
        self.is_lost = False
        self.followed: dict[str, Followed] = {}
        """Threads whose events come over this link."""
        self.scope = anyio.CancelScope()
        """Cancel it to close the link."""
        self._socket = socket
        self._end = end
        self._ids = itertools.count(1)
        self._calls: dict[int, _Call] = {}
        self._questions: dict[int, tuple[RequestId, str | None]] = {}
        """Open requests of the node, by its ids: the client's ids, and the threads if any."""
        self._answers: asyncio.Queue[str] = asyncio.Queue()
        """Answers of the client to these; there is at most one of each."""
        self._to_hand_on = 0
        """Answers that have come and are not with the client yet."""
        self._held: list[str] = []
        """Frames behind these."""
        self._held_chars = 0

    @property
    def is_idle(self) -> bool:
        """Whether it can be closed without anybody missing anything."""
        return not self.followed and not self._calls

    async def introduce(self, params: Json) -> None:
        """Shake hands as the client did here.

        Raises:
            NodeUnreachable: the node does not take the client.
        """
        try:
            hello: JsonObject = {"id": 0, "method": "initialize", "params": params}
            await self._socket.send(self._rendered(hello))
            while (answer := _ANSWER.match(text := await self._socket.receive())) is None:
                self._take(text)
            if answer[4] == "error":
                raise NodeUnreachable(f"it refuses the client: {text[:500]}")
            await self._socket.send(self._rendered({"method": "initialized"}))
        except anyio.EndOfStream as exc:
            raise NodeUnreachable("it has closed the connection") from exc

    async def run(self) -> None:
        """Take what the node sends until it has gone, and settle then what it had asked."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._send_answers)
                await self._read()
                tasks.cancel_scope.cancel()
        finally:
            self.is_lost = True
            self._flush()
            for call in self._calls.values():
                if not call.answer.done():
                    call.answer.set_exception(LinkLost())
            self._settle_all()

    async def _read(self) -> None:
        try:
            while True:
                self._take(await self._socket.receive())
                await self._end.wait_for_room()
        except anyio.EndOfStream:
            logger.info("the connection to node %s has ended", self.owner.node_id)
        except (ValueError, KeyError, TypeError, AttributeError) as exc:
            # Another version, or something else behind its address.
            logger.warning("node %s sent what is no message: %r", self.owner.node_id, exc)

    async def call(self, request: Request, context: RequestContext[object]) -> tuple[str, bool]:
        """Have the node answer; the text for the client, and whether it is an error.

        Frames that come behind the answer wait until `context` is answered.

        Raises:
            LinkLost, OwnerMoved
        """
        if self.is_lost:
            raise LinkLost
        number = next(self._ids)
        call = _Call(request, asyncio.get_running_loop().create_future())
        self._calls[number] = call
        try:
            message: JsonObject = {"id": number, "method": request.method}
            if request.params is not None:
                message["params"] = request.params
            if request.trace is not None:
                message["trace"] = request.trace
            await self._socket.send(self._rendered(message))
            text, is_error = await call.answer
        except anyio.EndOfStream:
            raise LinkLost from None
        except asyncio.CancelledError:
            if call.answer.done() and not call.answer.cancelled():
                self._handed_on()
            raise
        finally:
            del self._calls[number]
        if is_error and _word_of(text) == MOVED:
            self._handed_on()
            raise OwnerMoved
        context.after_answer(self._handed_on)
        return text, is_error

    def _rendered(self, message: JsonObject) -> str:
        return to_json({"jsonrpc": "2.0", **message} if self._end.jsonrpc else message).decode()

    # From the node.

    def _take(self, text: str) -> None:
        answer = _ANSWER.match(text)
        if answer is not None:
            call = self._calls.get(int(answer[2]))
            if call is not None and not call.answer.done():
                shown_id = to_json(call.request.id).decode()
                self._to_hand_on += 1
                call.answer.set_result(
                    (f"{answer[1]}{shown_id}{text[answer.start(3) :]}", answer[4] == "error")
                )
            return
        sent = _SENT.match(text)
        if sent is None:
            logger.warning("node %s sent what is no message", self.owner.node_id)
            return
        method, number = sent[1], sent[2]
        shown: str | None = text
        if number is not None:
            shown = self._asked(text, sent)
        elif method == RESOLVED:
            shown = self._resolved(text)
        elif method in _NOTED:
            _NOTED[method](self.followed, from_json(text)["params"])
        if shown is not None:
            self._pass_on(shown)

    def _pass_on(self, text: str) -> None:
        if self._to_hand_on == 0:
            self._end.post(text)
            return
        self._held.append(text)
        self._held_chars += len(text)
        if self._held_chars > MAX_HELD_CHARS:
            self._flush()

    def _handed_on(self) -> None:
        """Note that an answer is with the client, and let out what waits behind the last one."""
        self._to_hand_on -= 1
        if self._to_hand_on == 0:
            self._flush()

    def _flush(self) -> None:
        held, self._held, self._held_chars = self._held, [], 0
        for text in held:
            self._end.post(text)

    # Requests of the node.

    def _asked(self, text: str, sent: re.Match[str]) -> str:
        """Give a request of the node an id of this one; its answer goes to the node."""
        number = int(sent[2])
        thread_id = from_json(text)["params"].get("threadId")
        request_id = self._end.hub.server_requests.pass_on(
            self._end.connection_id, partial(self._answered, number)
        )
        self._questions[number] = request_id, thread_id
        return f"{text[: sent.start(2)]}{request_id}{text[sent.end(2) :]}"

    def _answered(self, number: int, answer: Answer) -> None:
        outcome = {"result": answer.result} if answer.error is None else {"error": answer.error}
        self._answers.put_nowait(self._rendered({"id": number, **outcome}))

    async def _send_answers(self) -> None:
        with suppress(anyio.EndOfStream):
            while True:
                await self._socket.send(await self._answers.get())

    def _resolved(self, text: str) -> str | None:
        """Say of a request of the node, by the id of this one, that it is settled."""
        message = from_json(text)
        known = self._questions.pop(message["params"]["requestId"], None)
        if known is None:
            return None
        self._end.hub.server_requests.withdraw(known[0])
        message["params"]["requestId"] = known[0]
        return to_json(message).decode()

    def _settle_all(self) -> None:
        """Say of all requests of a node that has gone that they are settled."""
        questions, self._questions = self._questions, {}
        for request_id, thread_id in questions.values():
            self._end.hub.server_requests.withdraw(request_id)
            if thread_id is not None:
                settled = ServerRequestResolvedNotification(
                    thread_id=thread_id, request_id=request_id
                )
                self._end.hub.notify(self._end.connection_id, settled)


def _word_of(text: str) -> Json:
    data = from_json(text)["error"].get("data")
    return data.get("code") if isinstance(data, dict) else None


# Notes of what a client has seen of its threads.

Threads: TypeAlias = dict[str, Followed]


def _turn_started(threads: Threads, params: JsonObject) -> None:
    threads[params["threadId"]] = Followed(params["turn"]["id"], is_open=True)


def _turn_completed(threads: Threads, params: JsonObject) -> None:
    threads[params["threadId"]] = Followed(params["turn"]["id"])


def _item_completed(threads: Threads, params: JsonObject) -> None:
    followed = threads.setdefault(params["threadId"], Followed())
    if followed.turn_id != params["turnId"]:
        followed = threads[params["threadId"]] = Followed(params["turnId"], is_open=True)
    followed.completed.add(params["item"]["id"])


def _gone(threads: Threads, params: JsonObject) -> None:
    threads.pop(params["threadId"], None)


RESOLVED = "serverRequest/resolved"

_NOTED: Mapping[str, Callable[[Threads, JsonObject], None]] = {
    "turn/started": _turn_started,
    "turn/completed": _turn_completed,
    "item/completed": _item_completed,
    "thread/closed": _gone,
    "thread/deleted": _gone,
    "thread/archived": _gone,
}
