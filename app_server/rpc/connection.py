"""One client's conversation.

In: text from a MessageStream. Out: text to the same stream, one whole message per send.
A read task takes messages in order, a task for each answers it, a write task empties the outbox.
Invariant: a request gets exactly one answer, also when the server is stopping, unless the client
has gone; requests of a client that has gone are finished, within a bound.
Source: docs/wire.md, "Framing", "Order", "Bounds".
"""

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import anyio

from app_server.observability.log_context import bind_request
from app_server.rpc.batch import BatchAnswers
from app_server.rpc.context import ClientSession, ConnectionId, RequestContext
from app_server.rpc.limits import ConnectionLimits
from app_server.rpc.message_stream import ClientGone, MessageStream
from app_server.rpc.ordering import QueuePlace, RequestQueues
from app_server.rpc.outbox import Outbox
from app_server.rpc.outgoing import Delta
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
    parse_message,
    refused,
    render_error,
)
from protocol.jsonrpc.errors import MAX_ANSWER_CHARS, RpcError, overloaded
from protocol.jsonrpc.value_count import MAX_VALUES, PIECE_CHARS, ValueCount
from protocol.server.lifecycle import ClientInfo
from protocol.thread_ids import usual_form

logger = logging.getLogger(__name__)

CLOSE_NORMAL = 1000
CLOSE_GOING_AWAY = 1001
CLOSE_TRY_AGAIN_LATER = 1013

JOINED_CHARS = 32 * 1024
"""Of waiting messages that are written at once, after the first."""
MANY_IN_FLIGHT = 8
"""Requests: the answers of so many go out together, in fewer writes."""
BATCH_STEP = 16
"""Messages of a batch that are taken before others may run."""


Work: TypeAlias = Coroutine[Any, Any, None]


class Requests(Protocol):
    """Dispatcher of requests (rpc.dispatch)."""

    @property
    def services(self) -> object:
        """Services that handlers get with each request."""

    async def dispatch(self, context: RequestContext[Any], request: Request) -> str:
        """Return the rendered answer."""

    def refused(self, failure: str) -> None:
        """Count an error to what is not dispatched; `failure` is its word."""


class Clients(Protocol):
    """Registry of the connected clients (rpc.hub)."""

    def connect(self, peer: "RpcConnection") -> AbstractContextManager[ConnectionId]:
        """Announce a connection for as long as it lasts."""

    def answer(self, connection_id: ConnectionId, answer: Answer) -> None:
        """Take a client's answer to a question of ours."""

    def leave(self, connection_id: ConnectionId) -> None:
        """End what belongs to a client that has gone; its requests may still be worked on."""


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
        clients: Clients,
        limits: ConnectionLimits,
    ) -> None:
        self.session: ClientSession | None = None
        self._stream = stream
        self._requests = requests
        self._clients = clients
        self._limits = limits
        self._outbox = Outbox(limits.outbox)
        self._writing = anyio.CancelScope()
        self._reading = anyio.CancelScope()
        self._close_code, self._close_reason = CLOSE_NORMAL, ""
        self._in_flight = 0
        """Requests that are being worked on, until their answers are on their way."""
        self._in_flight_chars = 0
        """Of their texts."""
        self._queues = RequestQueues()
        self._batches: list[BatchAnswers] = []
        self._id: ConnectionId = 0

    @property
    def is_behind(self) -> bool:
        """Whether so much waits for this client that pieces of one text are joined."""
        return self._outbox.is_full

    def post(self, text: str, delta: Delta | None = None) -> None:
        """Queue a message for this client; never waits."""
        self._outbox.add(text, delta)
        if self._outbox.overflowed:
            # The write task may be stuck in a send to a client that does not read.
            self._writing.cancel()

    @property
    def load(self) -> ConnectionLoad:
        """Requests in flight and messages that wait."""
        return ConnectionLoad(
            in_flight=self._in_flight,
            messages=self._outbox.messages,
            chars=self._outbox.chars,
            in_flight_chars=self._in_flight_chars,
            id=self._id,
            client=None if self.session is None else self.session.info,
            limits=self._limits,
        )

    def give_up(self) -> None:
        """Close the conversation: this client has missed something that cannot be sent again."""
        self._outbox.give_up()
        self._writing.cancel()

    async def run(self) -> None:
        """Hold the conversation until the client leaves or cannot keep up."""
        with self._clients.connect(self) as self._id:
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._read_then_finish)
                    await self._write()
                    await self._close()
                    # A pipe that is closed in one direction may go on in the other one.
                    self._clients.leave(self._id)
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
                    # A write to a socket costs as much as all else that is done for a message.
                    await self._stream.send(first, *self._outbox.take_waiting(JOINED_CHARS))
                    self._outbox.release()
                    if self._outbox.is_closed:
                        self._bound_next_write()
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
        # asyncio's task group, not anyio's: starting a task costs a third (docs/decisions.md).
        try:
            with anyio.CancelScope() as scope:
                async with asyncio.TaskGroup() as tasks:
                    with self._reading:
                        await self._read(tasks)
                    scope.deadline = anyio.current_time() + self._limits.finish_s
        finally:
            # A request that was cancelled leaves its batch incomplete; a turn that another one of
            # the batch has accepted has to begin all the same.
            for batch in self._batches:
                batch.answered()
        self._outbox.close()
        self._bound_next_write()

    async def _read(self, tasks: asyncio.TaskGroup) -> None:
        try:
            while True:
                if self._outbox.has_no_room:
                    await self._outbox.wait_for_room()
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
            self._clients.leave(self._id)
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
            if position % BATCH_STEP == 0:
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
                self._clients.answer(self._id, message)
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
            self.session,
            self._requests.services,
        )
        spec = METHODS.get(request.method)
        order = FREE if spec is None else spec.order
        if order.access is Access.BARRIER:
            return self._answer_on_reader(context, request, chars, batch)
        key = None if order.access is Access.FREE else _queue_key(order, request)
        if key is None:
            tasks.create_task(self._answer(context, request, chars, batch))
        else:
            place = self._queues.take_place(key, order.access)
            tasks.create_task(self._answer_queued(place, context, request, chars, batch))
        return None

    async def _answer_on_reader(
        self, context: RequestContext[Any], request: Request, chars: int, batch: BatchAnswers | None
    ) -> None:
        """Answer a request on the task that reads, which goes on afterwards."""
        with anyio.CancelScope(shield=True):
            await self._answer(context, request, chars, batch)
        bind_request(None)

    async def _answer_queued(
        self,
        place: QueuePlace,
        context: RequestContext[Any],
        request: Request,
        chars: int,
        batch: BatchAnswers | None,
    ) -> None:
        """Answer a request when it is the first of its queue."""
        async with place:
            await self._answer(context, request, chars, batch)

    async def _answer(
        self, context: RequestContext[Any], request: Request, chars: int, batch: BatchAnswers | None
    ) -> None:
        """Answer a request now."""
        bind_request((context.connection_id, request.id, request.method))
        try:
            text = await self._requests.dispatch(context, request)
        except BaseException:
            context.answered()
            raise
        finally:
            self._in_flight -= 1
            self._in_flight_chars -= chars
        if self.session is None:
            # `initialize` has settled it.
            self.session = context.session
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
        return self.session is not None and self.session.jsonrpc


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
        return order.queue
    value: object = request.params
    for name in order.member.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return f"{order.queue}:{usual_form(value)}" if isinstance(value, str) else None
