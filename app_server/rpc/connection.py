"""One client's conversation, and the conversations with all clients.

In: text from a MessageStream. Out: text to the same stream, one whole message per send.
A read task takes messages in order (`RequestQueues`), and answers those that wait for nothing; a
task for each of the others answers it, and a write task empties the outbox. The answers of a
batch are sent as one array when the last has come.
Invariant: a request gets exactly one answer, also when the server is stopping, unless the client
has gone; requests of a client that has gone are finished, within a bound.
Source: docs/wire.md, "Framing", "Order", "Bounds"; JSON-RPC 2.0, section 6.
"""

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Coroutine, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import anyio

from app_server.observability.log_context import bind_request
from app_server.rpc.context import ConnectionId, InitializedClient, RequestContext
from app_server.rpc.hub import Hub
from app_server.rpc.message_stream import ClientGone, ConnectionLimits, MessageStream
from app_server.rpc.older_interface.stream import OlderInterface
from app_server.rpc.outbox import Delta, Outbox
from protocol.contract.methods import METHODS
from protocol.contract.specs import FREE, Access, Order
from protocol.jsonrpc.envelope import (
    Answer,
    Batch,
    Invalid,
    Message,
    Notification,
    Request,
    RequestId,
    join_messages,
    parse_message,
    refused,
    render_batch,
    render_error,
)
from protocol.jsonrpc.errors import MAX_ANSWER_CHARS, RpcError, answer_too_large, overloaded
from protocol.jsonrpc.value_count import MAX_VALUES, PIECE_CHARS, ValueCount
from protocol.server.lifecycle import ClientInfo
from protocol.thread_ids import usual_form

logger = logging.getLogger(__name__)


class QueuePlace:
    """One request's place in a queue; enter it with `async with`."""

    __slots__ = ("_open", "_queues", "key", "shared")

    def __init__(self, queues: "RequestQueues", key: str, *, shared: bool) -> None:
        self.key = key
        self.shared = shared
        self._queues = queues
        self._open: anyio.Event | None = None

    async def __aenter__(self) -> None:
        if self._queues.may_enter(self):
            return
        self._open = anyio.Event()
        try:
            await self._open.wait()
        except BaseException:
            self._queues.leave(self)
            raise

    async def __aexit__(self, *_: object) -> None:
        self._queues.leave(self)

    def let_in(self) -> None:
        """Wake the request if it waits."""
        if self._open is not None:
            self._open.set()


NO_QUEUE = nullcontext()
"""Of requests that wait for no others."""


class RequestQueues:
    """The queues of one connection; a queue exists only while a request is in it."""

    def __init__(self) -> None:
        self.by_key: dict[str, deque[QueuePlace]] = {}
        """The places of each queue, the first come first."""

    def take_place(self, key: str, access: Access) -> QueuePlace:
        """Queue up behind all earlier requests with this key. The place must be entered.

        Cancelling while waiting gives the place up.
        """
        place = QueuePlace(self, key, shared=access is Access.SHARED)
        self.by_key.setdefault(key, deque()).append(place)
        return place

    def may_enter(self, place: QueuePlace) -> bool:
        """Whether it is the turn of a place."""
        return place in _open_places(self.by_key[place.key])

    def leave(self, place: QueuePlace) -> None:
        """Give a place up, and let in whose turn it is then."""
        queue = self.by_key[place.key]
        queue.remove(place)
        if not queue:
            del self.by_key[place.key]
        for open_place in _open_places(queue):
            open_place.let_in()


def _open_places(queue: deque[QueuePlace]) -> Iterator[QueuePlace]:
    """Give the first place, and the shared ones right behind it if it is shared itself."""
    for position, place in enumerate(queue):
        if position > 0 and not (place.shared and queue[0].shared):
            return
        yield place


class BatchAnswers:
    """Collects answers for one array of at most MAX_ANSWER_CHARS.

    The space that an error needs is kept for every request that is not answered yet. An answer that
    does not fit into the rest gives way to that error.
    """

    def __init__(self, batch: Batch) -> None:
        self._missing = 0
        self._free = MAX_ANSWER_CHARS - len("[]")
        for message in batch.messages:
            if isinstance(message, Request | Invalid):
                self._missing += 1
                self._free -= _reserved(message.id)
        self._answers: list[str] = []
        self._contexts: list[RequestContext[Any]] = []
        """Of the requests whose answers came."""

    @property
    def fits(self) -> bool:
        """Whether there is space for an error to every request."""
        return self._free >= 0

    @property
    def is_complete(self) -> bool:
        """Whether no answer is missing."""
        return len(self._answers) == self._missing

    def add(
        self,
        request_id: RequestId | None,
        text: str,
        context: RequestContext[Any] | None,
        *,
        jsonrpc: bool,
    ) -> None:
        """Add one answer; `context` is None for what was refused unread."""
        more = len(text) + len(",") - _reserved(request_id)
        if more > self._free:
            text = _too_large(request_id, len(text), jsonrpc=jsonrpc)
            more = 0
        self._free -= more
        self._answers.append(text)
        if context is not None:
            self._contexts.append(context)

    def text(self) -> str:
        """Render the array."""
        return render_batch(self._answers)

    def answered(self) -> None:
        """Run what was waiting for the answers, once the array is queued or will never be sent."""
        contexts, self._contexts = self._contexts, []
        for context in contexts:
            context.answered()


def _reserved(request_id: RequestId | None) -> int:
    # The longest form: with `jsonrpc`, and with as many digits as a size may have.
    return len(_too_large(request_id, 10**9, jsonrpc=True)) + len(",")


def _too_large(request_id: RequestId | None, size: int, *, jsonrpc: bool) -> str:
    return render_error(request_id, answer_too_large(size).to_wire(), jsonrpc=jsonrpc)


CLOSE_NORMAL = 1000
CLOSE_GOING_AWAY = 1001
CLOSE_TRY_AGAIN_LATER = 1013

JOINED_CHARS = 32 * 1024
"""Of waiting messages that are written at once, after the first."""
MANY_IN_FLIGHT = 8
"""Requests: the answers of so many go out together, in fewer writes."""
DELTA = 'elta"'
"""How names of methods with deltas end."""
HEAD_CHARS = 80
"""Of a message, in which its method is named."""
STEP = 16
"""Messages that came at once, in a batch or not, of which others run before the next is taken."""


Work: TypeAlias = Coroutine[Any, Any, None]


class RunningRequests:
    """Requests of a conversation that run as tasks, until `cut_off`.

    The task of an answered request takes the next one: a scope costs more than most requests.
    """

    def __init__(self) -> None:
        self._scopes: set[anyio.CancelScope] = set()
        self._next: asyncio.Future[Work | None] | None = None
        """The next request of a task that waits for one; None ends the task."""
        self._is_last = False
        """No further request is started."""

    def start(self, work: Work, tasks: asyncio.TaskGroup) -> None:
        """Start to work on a request."""
        if self._next is None:
            tasks.create_task(self._run(work))
        else:
            self._next.set_result(work)
            self._next = None

    async def _run(self, work: Work | None) -> None:
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            while work is not None:
                await work
                # What waits for the next request belongs to none.
                bind_request(None)
                if self._is_last or self._next is not None:
                    break
                self._next = asyncio.get_running_loop().create_future()
                work = await self._next
        self._scopes.discard(scope)

    def finish(self) -> None:
        """Have tasks end with their requests, as no further one is started."""
        self._is_last = True
        if self._next is not None:
            self._next.set_result(None)
            self._next = None

    def cut_off(self) -> None:
        """Cancel what runs; what is shielded in it is waited for."""
        self.finish()
        for scope in list(self._scopes):
            scope.cancel()


class Requests(Protocol):
    """Dispatcher of requests (rpc.dispatch)."""

    @property
    def services(self) -> object:
        """Services that handlers get with each request."""

    async def dispatch(self, context: RequestContext[Any], request: Request) -> str:
        """Return the rendered answer."""

    def is_immediate(self, method: str) -> bool:
        """Whether a method of `Access.AT_ONCE` is answered without waiting now."""

    def refused(self, failure: str) -> None:
        """Count an error to what is not dispatched; `failure` is its word."""


@dataclass(frozen=True, slots=True)
class ConnectionLoad:
    """Load of one connection: requests and messages, and their bounds."""

    in_flight: int
    """Requests."""
    messages: int
    """Messages that wait to be sent."""
    chars: int
    """Of these messages."""
    in_flight_chars: int = 0
    """Of the texts of the requests."""
    id: ConnectionId = 0
    client: ClientInfo | None = None
    """None before `initialize`."""
    limits: ConnectionLimits = field(default_factory=ConnectionLimits)


class RpcConnection:
    """The conversation with one client, from its first byte to its last."""

    def __init__(
        self,
        stream: MessageStream,
        requests: Requests,
        hub: Hub,
        limits: ConnectionLimits,
        *,
        is_of_node: bool = False,
    ) -> None:
        """`is_of_node`: another node passes on here what its client asks."""
        self.initialized: InitializedClient | None = None
        self.is_of_node = is_of_node
        self._stream = stream
        self._requests = requests
        self._hub = hub
        self._limits = limits
        self._outbox = Outbox(limits.outbox)
        self._writing = anyio.CancelScope()
        self._reading = anyio.CancelScope()
        self._close_code, self._close_reason = CLOSE_NORMAL, ""
        self._in_flight = 0
        """Requests that are being worked on, until their answers are on their way."""
        self._in_flight_chars = 0
        """Of their texts."""
        self._running = RunningRequests()
        self._queues = RequestQueues()
        self._batches: list[BatchAnswers] = []
        self._id: ConnectionId = 0

    @property
    def is_behind(self) -> bool:
        """Whether so much waits for this client that pieces of one text are joined."""
        return self._outbox.is_full

    def post(self, *texts: str, delta: Delta | None = None) -> None:
        """Queue messages for this client; `delta` is the only one's mergeable form; never waits."""
        self._outbox.add(*texts, delta=delta)
        if self._outbox.overflowed:
            # The write task may be stuck in a send to a client that does not read.
            self._writing.cancel()

    async def wait_for_room(self) -> None:
        """Wait while so much is to be sent that the client's requests are not read either."""
        await self._outbox.wait_for_room()

    @property
    def load(self) -> ConnectionLoad:
        """Requests in flight and messages that wait."""
        return ConnectionLoad(
            in_flight=self._in_flight,
            messages=self._outbox.messages,
            chars=self._outbox.chars,
            in_flight_chars=self._in_flight_chars,
            id=self._id,
            client=None if self.initialized is None else self.initialized.info,
            limits=self._limits,
        )

    def give_up(self) -> None:
        """Close the conversation: this client has missed something that cannot be sent again."""
        self._outbox.give_up()
        self._writing.cancel()

    async def run(self) -> None:
        """Hold the conversation until the client leaves or cannot keep up."""
        with self._hub.connect(self) as self._id:
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._read_then_finish)
                    try:
                        await self._write()
                        await self._close()
                        # A pipe that is closed in one direction may go on in the other one.
                        self._hub.connections.end(self._id)
                    except BaseException:
                        self._running.cut_off()
                        raise
                    finally:
                        self._reading.cancel()
            finally:
                with anyio.CancelScope(shield=True):
                    await self._close()

    def finish(self) -> None:
        """End the conversation from our side: read no more, answer what was read, then close."""
        self._close_code, self._close_reason = CLOSE_GOING_AWAY, "the server stops"
        self._reading.cancel()

    async def _write(self) -> None:
        with self._writing:
            try:
                while True:
                    first = await self._outbox.take()
                    is_gathered = self.is_of_node and DELTA in first[:HEAD_CHARS]
                    # A write to a socket costs as much as all else that is done for a message.
                    texts = [first, *self._outbox.take_waiting(JOINED_CHARS)]
                    await self._stream.send(*([join_messages(texts)] if is_gathered else texts))
                    self._outbox.release()
                    if self._outbox.is_closed:
                        self._bound_next_write()
                    elif is_gathered:
                        await asyncio.sleep(self._limits.gather_s)
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                pass
        if self._outbox.overflowed:
            logger.warning("connection %d cannot keep up and is closed", self._id)
            self._close_code = CLOSE_TRY_AGAIN_LATER
            self._close_reason = "reads too slowly; resume later"
        self._outbox.abandon()

    def _bound_next_write(self) -> None:
        """Give up a client that takes nothing, once it is sent nothing new."""
        self._writing.deadline = anyio.current_time() + self._limits.finish_s

    async def _close(self) -> None:
        with anyio.move_on_after(self._limits.finish_s):
            await self._stream.aclose(self._close_code, self._close_reason)

    async def _read_then_finish(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            # What runs is ended by its own scopes: a task group that is cancelled cancels its tasks
            # at once, and a write that waits for the disk would go on without them.
            with anyio.CancelScope(shield=True):
                # asyncio's, not anyio's: starting a task costs a third (docs/decisions.md).
                async with asyncio.TaskGroup() as tasks:
                    with self._reading:
                        await self._read(tasks)
                    self._running.finish()
                    cutting_off = loop.call_later(self._limits.finish_s, self._running.cut_off)
                cutting_off.cancel()
        finally:
            # A request that was cancelled leaves its batch incomplete; a turn that another one of
            # the batch has accepted has to begin all the same.
            for batch in self._batches:
                batch.answered()
        self._outbox.close()
        self._bound_next_write()

    async def _read(self, tasks: asyncio.TaskGroup) -> None:
        try:
            for taken in itertools.count(1):
                if self._outbox.has_no_room:
                    await self._outbox.wait_for_room()
                if taken % STEP == 0:
                    await asyncio.sleep(0)
                text = await self._stream.receive()
                # A value takes two characters at least, so that a short text is parsed at once.
                is_long = len(text) > MAX_VALUES
                message = await _parse_long(text) if is_long else parse_message(text)
                if isinstance(message, Batch):
                    with anyio.CancelScope(shield=True):
                        await self._take_batch(message, len(text) // len(message.messages), tasks)
                elif (first := self._take(message, len(text), None, tasks)) is not None:
                    await first
        except ClientGone:
            self._hub.connections.end(self._id)
        except anyio.EndOfStream:
            pass

    async def _take_batch(self, batch: Batch, chars: int, tasks: asyncio.TaskGroup) -> None:
        answers = BatchAnswers(batch)
        if not answers.fits:
            invalid = refused(None, "the ids of a batch leave no space for its answers")
            self._take(invalid, chars, None, tasks)
            return
        self._batches = [batch for batch in self._batches if not batch.is_complete]
        self._batches.append(answers)
        for position, message in enumerate(batch.messages, start=1):
            if first := self._take(message, chars, answers, tasks):
                await first
            if position % STEP == 0:
                await asyncio.sleep(0)

    def _take(
        self, message: Message, chars: int, batch: BatchAnswers | None, tasks: asyncio.TaskGroup
    ) -> Work | None:
        """Take a message; returns what is to be awaited before the next one is taken."""
        match message:
            case Request():
                if self._have_room_for(chars):
                    return self._take_request(message, chars, batch, tasks)
                self._refuse(message.id, overloaded(), batch)
            case Answer():
                self._hub.answer(self._id, message)
            case Invalid():
                self._refuse(message.id, message.error, batch)
            case Notification():
                # `initialized` asks for nothing, and other notifications do not exist.
                logger.debug("notification: %.100s", message.method)
        return None

    def _have_room_for(self, chars: int) -> bool:
        """Whether a request with a text of so many characters may be taken."""
        return self._in_flight == 0 or (
            self._in_flight < self._limits.max_in_flight
            and self._in_flight_chars + chars <= self._limits.max_in_flight_chars
        )

    def _take_request(
        self, request: Request, chars: int, batch: BatchAnswers | None, tasks: asyncio.TaskGroup
    ) -> Work | None:
        """Have a request answered to the client, or to the `batch` that it belongs to.

        Its place in the order of requests is taken. Returns what must be awaited before the next
        message is read.
        """
        self._in_flight += 1
        self._in_flight_chars += chars
        jsonrpc = self._jsonrpc or (request.jsonrpc and request.method == "initialize")
        context = RequestContext(
            self._id,
            request.method,
            jsonrpc,
            self.initialized,
            self._requests.services,
            is_of_batch=batch is not None,
        )
        spec = METHODS.get(request.method)
        order = FREE if spec is None else spec.order
        if order.access is Access.BARRIER:
            return self._answer_on_reader(context, request, chars, batch)
        if order.access is Access.AT_ONCE and self._requests.is_immediate(request.method):
            # Nothing in it waits but the write, behind which a cancel loses nothing.
            return self._answer(context, request, chars, batch)
        key = _queue_key(order, request)
        place = None if key is None else self._queues.take_place(key, order.access)
        self._running.start(self._answer(context, request, chars, batch, place), tasks)
        return None

    async def _answer_on_reader(
        self, context: RequestContext[Any], request: Request, chars: int, batch: BatchAnswers | None
    ) -> None:
        """Answer a request on the task that reads, which goes on afterwards."""
        with anyio.CancelScope(shield=True):
            await self._answer(context, request, chars, batch)
        bind_request(None)

    async def _answer(
        self,
        context: RequestContext[Any],
        request: Request,
        chars: int,
        batch: BatchAnswers | None,
        place: QueuePlace | None = None,
    ) -> None:
        """Answer a request, once it is the first of its queue if it has a place in one."""
        async with place or NO_QUEUE:
            bind_request((context.connection_id, request.id, request.method))
            try:
                text = await self._requests.dispatch(context, request)
            except BaseException:
                context.answered()
                raise
            finally:
                self._in_flight -= 1
                self._in_flight_chars -= chars
            if self.initialized is None:
                # `initialize` has settled it.
                self.initialized = context.initialized
            if batch is not None:
                self._add_to_batch(batch, request.id, text, context)
                return
            try:
                if self._in_flight < MANY_IN_FLIGHT and self._outbox.claim():
                    await self._send_now(text)
                elif len(text) > MAX_ANSWER_CHARS:
                    await self._outbox.add_large(text)
                else:
                    self.post(text)
            finally:
                context.answered()

    async def _send_now(self, text: str) -> None:
        """Send without waking the write task; that saves a turn of the event loop an answer."""
        try:
            await self._stream.send(text)
        except anyio.BrokenResourceError:
            # The write task ends the conversation then.
            self._outbox.abandon()
        finally:
            self._outbox.release()

    def _refuse(
        self, request_id: RequestId | None, error: RpcError, batch: BatchAnswers | None
    ) -> None:
        self._requests.refused(error.word or "invalidRequest")
        text = render_error(request_id, error.to_wire(), jsonrpc=self._jsonrpc)
        if batch is None:
            self.post(text)
        else:
            self._add_to_batch(batch, request_id, text)

    def _add_to_batch(
        self,
        batch: BatchAnswers,
        request_id: RequestId | None,
        text: str,
        context: RequestContext[Any] | None = None,
    ) -> None:
        """Add an answer to its batch, and queue the array when it is the last one."""
        batch.add(request_id, text, context, jsonrpc=self._jsonrpc)
        if batch.is_complete:
            self.post(batch.text())
            batch.answered()

    @property
    def _jsonrpc(self) -> bool:
        return self.initialized is not None and self.initialized.jsonrpc


async def _parse_long(text: str) -> Message | Batch:
    """Parse a text of any size, unless it holds more than MAX_VALUES values; others run meanwhile.

    Once begun, this is not cancelled by a scope outside of it: what was received gets its answer.
    """
    count = ValueCount()
    with anyio.CancelScope(shield=True):
        for start in range(0, len(text), PIECE_CHARS):
            count.add(text[start : start + PIECE_CHARS])
            if count.values > MAX_VALUES:
                return refused(None, f"a message may hold at most {MAX_VALUES} values")
            await asyncio.sleep(0)
    return parse_message(text)


def _queue_key(order: Order, request: Request) -> str | None:
    """Return the key of a request's queue; None where it keeps no order."""
    if not order.member:
        return order.queue or None
    value: object = request.params
    for name in order.member.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return f"{order.queue}:{usual_form(value)}" if isinstance(value, str) else None


class Conversations:
    """The open JSON-RPC conversations with clients."""

    def __init__(self, hub: Hub, limits: ConnectionLimits) -> None:
        self.hub = hub
        """All clients."""
        self._limits = limits
        self._connections: set[RpcConnection] = set()
        self._one_ended = anyio.Event()

    def loads(self) -> list[ConnectionLoad]:
        """Return how much waits on each connection."""
        return [connection.load for connection in self._connections]

    def converse(self, stream: MessageStream, requests: Requests) -> Coroutine[Any, Any, None]:
        """Hold the conversation with one client, until it or `finish` ends it."""
        client = OlderInterface(stream)
        return self._hold(RpcConnection(client, requests, self.hub, self._limits))

    def converse_with_node(
        self, stream: MessageStream, requests: Requests
    ) -> Coroutine[Any, Any, None]:
        """Hold the conversation with a client of another node, which passes it on."""
        return self._hold(RpcConnection(stream, requests, self.hub, self._limits, is_of_node=True))

    async def _hold(self, connection: RpcConnection) -> None:
        self._connections.add(connection)
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)
            self._one_ended.set()

    async def finish(self, within_s: float) -> None:
        """Have all answers sent and every conversation ended, as far as that takes `within_s`."""
        for connection in self._connections:
            connection.finish()
        with anyio.move_on_after(within_s):
            while self._connections:
                self._one_ended = anyio.Event()
                await self._one_ended.wait()
