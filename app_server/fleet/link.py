"""Link of one client to the node that owns some of its threads: frames, as they are.

Requests have ids of the link's own. Answers get the client's id back, and requests of the node to
the client an id of this node. What the node sends behind an answer stays behind it.

Of an answer to `thread/resume`, which has 64 Mi characters at most, the thread is read in steps,
between which others run: to parse it at once would hold the event loop, also in a worker thread.
Source: docs/scale.md, "Requests for other nodes".
"""

import asyncio
import itertools
import json
import logging
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio
from pydantic_core import from_json, to_json

from app_server.fleet.catching_up import (
    ITEM_COMPLETED,
    ITEM_STARTED,
    TURN_COMPLETED,
    TURN_STARTED,
    DeliveredTurn,
    Mark,
)
from app_server.peer.node import NodeSocket, NodeUnreachable
from app_server.rpc.context import ConnectionId, RequestContext
from app_server.rpc.hub import Hub
from app_server.threads.nodes import Owner
from protocol.jsonrpc.envelope import Answer, Request, RequestId, split_messages
from protocol.jsonrpc.errors import invalid_member
from protocol.model import Json, JsonObject
from protocol.threads.notifications import ServerRequestResolvedNotification

STEP_CHARS = 64 * 1024
"""Of a text that is read before others run; one turn without items, or one item, more."""

_DECODE = json.JSONDecoder().raw_decode
_OF_ITEM = ("id", "type", "status")


class _Place:
    """Place in a JSON text without spaces between tokens, as app-servers write it."""

    def __init__(self, text: str, at: int) -> None:
        self._text = text
        self._at = at
        self._yielded_at = at

    def value(self) -> Any:
        """Read the value that begins here."""
        value, self._at = _DECODE(self._text, self._at)
        return value

    def members(self) -> Iterator[str]:
        """Give the names of an object's members; each value is to be read before the next."""
        for _ in self._parts("{", "}"):
            name: str = self.value()
            self._skip(":")
            yield name

    def elements(self) -> Iterator[None]:
        """Give once for each element of an array, which is to be read before the next."""
        yield from self._parts("[", "]")

    def _parts(self, first: str, last: str) -> Iterator[None]:
        self._skip(first)
        is_over = self._is_at(last)
        while not is_over:
            yield
            is_over = not self._is_at(",")
            if not is_over:
                self._skip(",")
        self._skip(last)

    def _is_at(self, token: str) -> bool:
        return self._text.startswith(token, self._at)

    def _skip(self, token: str) -> None:
        if not self._is_at(token):
            raise ValueError(f"no {token} at character {self._at}")
        self._at += 1

    async def let_others_run(self) -> None:
        """Yield to the event loop if a step was read since the last time."""
        if self._at - self._yielded_at >= STEP_CHARS:
            self._yielded_at = self._at
            await asyncio.sleep(0)


async def read_shown_thread(text: str, at: int) -> tuple[str, list[JsonObject]]:
    """Read the id of the thread in an answer, and its newest turn, if turns are shown.

    The result begins at the character `at`. Of the items of the turn there are id, type and status.

    Raises:
        ValueError: this is no such answer.
    """
    place = _Place(text, at)
    thread_id, turns = None, list[JsonObject]()
    try:
        for name in place.members():
            if name != "thread":
                place.value()
                continue
            for member in place.members():
                if member == "turns":
                    turns = await _newest(place)
                elif member == "id":
                    thread_id = place.value()
                else:
                    place.value()
            # Nothing behind the thread is needed.
            break
    except RecursionError as exc:
        raise ValueError("nested too deeply") from exc
    if not isinstance(thread_id, str):
        raise ValueError("an answer without a thread")
    return thread_id, turns


async def _newest(place: _Place) -> list[JsonObject]:
    """Read an array of turns; the last one alone is kept."""
    turns: list[JsonObject] = []
    for _ in place.elements():
        turn: JsonObject = {}
        for name in place.members():
            turn[name] = await _heads(place) if name == "items" else place.value()
        turns = [turn]
        await place.let_others_run()
    return turns


async def _heads(place: _Place) -> list[JsonObject]:
    heads: list[JsonObject] = []
    for _ in place.elements():
        item = place.value()
        heads.append({name: item[name] for name in _OF_ITEM if name in item})
        await place.let_others_run()
    return heads


logger = logging.getLogger(__name__)

MAX_HELD = 1024
"""Frames that wait behind an answer; beyond it none does."""
MAX_HELD_CHARS = 4 * 1024 * 1024
"""Of these frames: all of them fit the outbox of a client that reads."""

MAX_REQUEST_BYTES = 64 * 1024 * 1024
"""Of a request as it is passed on: the node reads no more. Numbers may be longer than they came."""
MAX_ENDED = 1000
"""Threads of which it is remembered that their end was told."""

MOVED = "ownerMoved"
"""Word of the error of a node that does not own the thread; no client sees it."""

_ANSWER = re.compile(r'(\{(?:"jsonrpc":"2\.0",)?"id":)(\d+)(,"(result|error)":)')
_SENT = re.compile(r'\{(?:"jsonrpc":"2\.0",)?"method":"([^"]+)",(?:"id":(\d+),)?')
_ITEM = re.compile(r'"params":\{"item":\{(?:"\w+":(?:\d+|null),)*"type":"\w+","id":"([^"\\]+)"')
_OF_TURN = re.compile(r'"threadId":"([^"\\]+)","turnId":"([^"\\]+)"')
"""Heads of messages of an app-server, whose members have one order, and the end of an item's."""
TAIL_CHARS = 400
"""In which an event says behind its item which turn that is of."""


RESOLVED = "serverRequest/resolved"
GONE = frozenset({"thread/closed", "thread/deleted", "thread/archived"})
MARKED = frozenset({TURN_STARTED, TURN_COMPLETED, ITEM_STARTED, ITEM_COMPLETED})
NOTED = GONE | MARKED
"""Events that say how much a client has been told of its threads."""


class LinkLost(Exception):
    """The node has gone, and whether it did what was asked is not known."""


class OwnerMoved(Exception):
    """The node has gone, or does not own the thread any more, and did nothing."""


@dataclass(slots=True)
class _Call:
    request: Request
    answer: asyncio.Future[tuple[str, bool]]
    """Its text for the client, and whether it is an error."""
    seen: DeliveredTurn | None
    """Record for a thread that the client follows from the answer on, unless that shows turns.

    None: the client does not begin to follow one."""
    is_of_batch: bool


@dataclass(frozen=True, slots=True)
class LinkEnd:
    """The client at this node's end of a link."""

    hub: Hub
    connection_id: ConnectionId
    jsonrpc: bool

    def post(self, *texts: str) -> None:
        """Send the client messages; never waits."""
        peer = self.hub.connections.peers.get(self.connection_id)
        if peer is not None:
            peer.post(*texts)

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
        self.followed: dict[str, DeliveredTurn] = {}
        """Threads whose events come over this link."""
        self._ended: dict[str, str] = {}
        """By threads that it does not follow any more, the event that said so, until news do."""
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
        self._of_batches = 0
        """Of these, answers that wait for others of their batch."""
        self._to_post: list[str] = []
        """Messages of the frame that is taken, which nothing holds up."""
        self._held: list[str] = []
        """Messages behind these."""
        self._held_chars = 0
        self._holds_question = False

    @property
    def is_idle(self) -> bool:
        """Whether it can be closed without anybody missing anything."""
        return not self.followed and not self._calls

    def notifies(self, thread_id: str, method: str) -> bool:
        """Whether the node sends the client a change of a list, or has sent it."""
        if method == "thread/unarchived" or self._ended.get(thread_id) == method:
            return self._ended.pop(thread_id, None) == method or thread_id in self.followed
        return thread_id in self.followed or thread_id in self._ended

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
                self._post()
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
            self._post()
            self._flush()
            for call in self._calls.values():
                if not call.answer.done():
                    call.answer.set_exception(LinkLost())
            self._settle_all()

    async def _read(self) -> None:
        try:
            while True:
                for text in split_messages(await self._socket.receive()):
                    answer = _ANSWER.match(text)
                    if answer is None:
                        self._take(text)
                    else:
                        self._post()
                        await self._take_answer(answer, text)
                    if self._to_hand_on:
                        self._post()
                        # Whoever asked hands the answer on, before more comes.
                        await asyncio.sleep(0)
                self._post()
                await self._end.wait_for_room()
        except anyio.EndOfStream:
            logger.info("the connection to node %s has ended", self.owner.node_id)
        except (ValueError, KeyError, TypeError, AttributeError) as exc:
            # Another version, or something else behind its address.
            logger.warning("node %s sent what is no message: %r", self.owner.node_id, exc)

    async def call(
        self,
        request: Request,
        context: RequestContext[object],
        seen: DeliveredTurn | None = None,
    ) -> tuple[str, bool]:
        """Have the node answer; the text for the client, and whether it is an error.

        Frames that come behind the answer wait until `context` is answered. With `seen` the client
        follows the thread from the answer on, and has been told that of it, or what the answer
        shows.

        Raises:
            LinkLost, OwnerMoved
            RpcError: it is too large.
        """
        if self.is_lost:
            raise OwnerMoved
        number = next(self._ids)
        future: asyncio.Future[tuple[str, bool]] = asyncio.get_running_loop().create_future()
        call = _Call(request, future, seen, context.is_of_batch)
        self._calls[number] = call
        try:
            message: JsonObject = {"id": number, "method": request.method}
            if request.params is not None:
                message["params"] = request.params
            if request.trace is not None:
                message["trace"] = request.trace
            sent = self._rendered(message)
            if len(sent) > MAX_REQUEST_BYTES // 4 and len(sent.encode()) > MAX_REQUEST_BYTES:
                rule = f"must have at most {MAX_REQUEST_BYTES} bytes for the node with the thread"
                raise invalid_member("params", rule)
            await self._socket.send(sent)
            text, is_error = await call.answer
        except anyio.EndOfStream:
            raise LinkLost from None
        except asyncio.CancelledError:
            if call.answer.done() and not call.answer.cancelled():
                self._handed_on(call.is_of_batch)
            raise
        finally:
            del self._calls[number]
        if is_error and _word_of(text) == MOVED:
            self._handed_on(call.is_of_batch)
            raise OwnerMoved
        context.after_answer(self._handed_on, call.is_of_batch)
        return text, is_error

    def _rendered(self, message: JsonObject) -> str:
        return to_json({"jsonrpc": "2.0", **message} if self._end.jsonrpc else message).decode()

    # From the node.

    def _take(self, text: str) -> None:
        """Take what is no answer."""
        sent = _SENT.match(text)
        if sent is None:
            logger.warning("node %s sent what is no message", self.owner.node_id)
            return
        method, number = sent[1], sent[2]
        if number is not None:
            self._pass_on(self._asked(text, sent), is_question=True)
        elif method == RESOLVED:
            if (shown := self._resolved(text)) is not None:
                self._pass_on(shown)
        elif method not in NOTED or self._note(method, text):
            self._pass_on(text)

    async def _take_answer(self, answer: re.Match[str], text: str) -> None:
        call, is_error = self._calls.get(int(answer[2])), answer[4] == "error"
        if call is None or call.answer.done():
            return
        if call.seen is not None and not is_error:
            # Now, and not by whoever asked: the next message may be an event of the thread.
            thread_id, turns = await read_shown_thread(text, answer.end())
            self.followed[thread_id] = DeliveredTurn.from_answer(turns) if turns else call.seen
            if call.answer.done():
                # Whoever asked has gone meanwhile.
                return
        self._to_hand_on += 1
        self._of_batches += call.is_of_batch
        shown_id = to_json(call.request.id).decode()
        call.answer.set_result((f"{answer[1]}{shown_id}{text[answer.start(3) :]}", is_error))

    def _note(self, method: str, text: str) -> bool:
        """Note what a client is told of a thread; False: it has been told already."""
        if method in GONE:
            thread_id = from_json(text)["params"]["threadId"]
            if self.followed.pop(thread_id, None) is not None and method != "thread/closed":
                self._ended[thread_id] = method
                if len(self._ended) > MAX_ENDED:
                    del self._ended[next(iter(self._ended))]
            return True
        thread_id, mark = mark_of(method, text)
        followed = self.followed.get(thread_id)
        if followed is None and not mark.item_id:
            # A review is in a thread of its own, which the client follows without asking for it.
            followed = self.followed[thread_id] = DeliveredTurn()
        return followed is None or followed.note(mark)

    def _pass_on(self, text: str, *, is_question: bool = False) -> None:
        if self._to_hand_on == 0:
            self._to_post.append(text)
            return
        self._held.append(text)
        self._held_chars += len(text)
        self._holds_question |= is_question
        self._let_out()

    def _post(self) -> None:
        """Send what has come in one frame, and may go to the client."""
        if self._to_post:
            self._end.post(*self._to_post)
            self._to_post.clear()

    def _handed_on(self, is_of_batch: bool) -> None:
        """Note that an answer is with the client, and let out what waits behind the last one."""
        self._to_hand_on -= 1
        self._of_batches -= is_of_batch
        self._let_out()

    def _let_out(self) -> None:
        """Send what is held if nothing is to come before it, or may not wait for that."""
        # A batch may wait for the answer to a question.
        asks = self._holds_question and self._to_hand_on == self._of_batches
        is_much = len(self._held) > MAX_HELD or self._held_chars > MAX_HELD_CHARS
        if self._to_hand_on == 0 or asks or is_much:
            self._flush()

    def _flush(self) -> None:
        held, self._held, self._held_chars = self._held, [], 0
        self._holds_question = False
        if held:
            self._end.post(*held)

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


def mark_of(method: str, text: str) -> tuple[str, Mark]:
    """Read from an event's frame of which thread it is, and its mark; `method` is one of MARKED.

    Of an item both ends of the frame are read alone: it may have megabytes.
    """
    if method in (TURN_STARTED, TURN_COMPLETED):
        params = from_json(text)["params"]
        return params["threadId"], Mark(method, params["turn"]["id"])
    head = _ITEM.search(text, 0, TAIL_CHARS)
    tail = _OF_TURN.search(text, text.rfind('"threadId":"', len(text) - TAIL_CHARS))
    if head is not None and tail is not None:
        return tail[1], Mark(method, tail[2], head[1])
    params = from_json(text)["params"]
    return params["threadId"], Mark(method, params["turnId"], params["item"]["id"])
