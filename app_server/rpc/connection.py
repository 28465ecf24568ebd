"""One client's conversation.

In: text from a MessageStream. Out: text to the same stream, one whole message per send.
A read task takes messages in order and starts a task per request; a write task empties the outbox.
Invariant: a request gets exactly one answer, also when the server is stopping, unless the client
has gone; requests of a client that has gone are finished, within a bound.
Source: docs/wire.md, "Framing", "Order", "Bounds".
"""

import asyncio
import logging
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Protocol

import anyio

from app_server.logs.context import REQUEST
from app_server.rpc.batch import Action, BatchAnswers, Reply
from app_server.rpc.client_gone import ClientGone
from app_server.rpc.context import ClientSession, ConnectionId, RequestContext
from app_server.rpc.limits import ConnectionLimits
from app_server.rpc.ordering import KeyedQueue, LanePlace
from app_server.rpc.outbox import Outbox
from app_server.rpc.outgoing import Delta
from app_server.rpc.reading import read_message
from protocol.envelope import (
    Answer,
    Batch,
    Invalid,
    Message,
    Notification,
    Request,
    refused,
    render_error,
)
from protocol.errors import MAX_ANSWER_CHARS, overloaded
from protocol.lifecycle import ClientInfo
from protocol.methods import METHODS
from protocol.specs import FREE, Access, Order
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


class MessageStream(Protocol):
    """A pipe of whole messages to one client."""

    async def receive(self) -> str:
        """Return the next message.

        Raises:
            ClientGone: nobody is there any more.
            anyio.EndOfStream: the client has finished sending, or has gone.
        """

    async def send(self, *texts: str) -> None:
        """Send messages, in their order and in one piece; returns when the pipe has taken them.

        Raises:
            anyio.BrokenResourceError: the client has gone.
        """

    async def aclose(self, code: int = 1000, reason: str = "") -> None:
        """Close the pipe. `code` and `reason` are WebSocket's; other pipes ignore them."""


class Requests(Protocol):
    """Who answers requests (rpc.dispatch)."""

    async def dispatch(self, context: RequestContext, request: Request) -> str:
        """Return the rendered answer."""

    def refused(self, failure: str) -> None:
        """Count an error to what is not dispatched; `failure` is its word."""


class Clients(Protocol):
    """Who knows the connected clients (rpc.hub)."""

    def connect(self, peer: "RpcConnection") -> AbstractContextManager[ConnectionId]:
        """Announce a connection for as long as it lasts."""

    def answer(self, connection_id: ConnectionId, answer: Answer) -> None:
        """Take a client's answer to a question of ours."""

    def leave(self, connection_id: ConnectionId) -> None:
        """End what belongs to a client that has gone; its requests may still be worked on."""


@dataclass(frozen=True, slots=True)
class ConnectionLoad:
    """What one connection has to do, and its bounds."""

    in_flight: int
    """Requests."""
    messages: int
    """That wait to be sent."""
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
        self._queue = KeyedQueue()
        self._in_flight = 0
        self._in_flight_chars = 0
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
        """What is being worked on and what waits."""
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
        # asyncio's task group, not anyio's: starting a task costs a third (docs/changelog.md), and
        # this one starts a task for every request.
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
                batch.abandon()
        self._outbox.close()
        self._bound_next_write()

    async def _read(self, tasks: asyncio.TaskGroup) -> None:
        try:
            while True:
                await self._outbox.wait_for_room()
                text = await self._stream.receive()
                message = await read_message(text)
                if isinstance(message, Batch):
                    with anyio.CancelScope(shield=True):
                        await self._take_batch(message, len(text) // len(message.messages), tasks)
                else:
                    await self._take_one(message, len(text), self._reply, tasks)
        except ClientGone:
            self._clients.leave(self._id)
        except anyio.EndOfStream:
            pass

    async def _take_batch(self, batch: Batch, chars: int, tasks: asyncio.TaskGroup) -> None:
        answers = BatchAnswers(batch, self._reply, lambda: self._jsonrpc)
        if not answers.fits:
            invalid = refused(None, "the ids of a batch leave no space for its answers")
            await self._take_one(invalid, chars, self._reply, tasks)
            return
        self._batches = [batch for batch in self._batches if not batch.is_complete]
        self._batches.append(answers)
        for position, message in enumerate(batch.messages, start=1):
            request_id = message.id if isinstance(message, Request | Invalid) else None
            await self._take_one(message, chars, partial(answers.add, request_id), tasks)
            if position % BATCH_STEP == 0:
                await asyncio.sleep(0)

    async def _take_one(
        self, message: Message, chars: int, reply: Reply, tasks: asyncio.TaskGroup
    ) -> None:
        match message:
            case Request():
                await self._take_request(message, chars, reply, tasks)
            case Answer():
                self._clients.answer(self._id, message)
            case Invalid():
                self._requests.refused(message.error.word or "invalidRequest")
                text = render_error(message.id, message.error.to_wire(), jsonrpc=self._jsonrpc)
                reply(text, _nothing)
            case Notification():
                # `initialized` asks for nothing, and other notifications do not exist.
                logger.debug("notification: %.100s", message.method)

    @property
    def _jsonrpc(self) -> bool:
        return self.session is not None and self.session.jsonrpc

    async def _take_request(
        self, request: Request, chars: int, reply: Reply, tasks: asyncio.TaskGroup
    ) -> None:
        if not self._has_room_for(chars):
            self._requests.refused("overloaded")
            text = render_error(request.id, overloaded().to_wire(), jsonrpc=self._jsonrpc)
            reply(text, _nothing)
            return
        self._in_flight += 1
        self._in_flight_chars += chars
        read_at_s = perf_counter()
        spec = METHODS.get(request.method)
        order = FREE if spec is None else spec.order
        if order.access is Access.BARRIER:
            with anyio.CancelScope(shield=True):
                await self._answer(request, chars, reply, read_at_s)
            # That was on the reader's own task.
            REQUEST.set(None)
        elif (lane := _lane(order, request)) is not None:
            place = self._queue.take_place(lane, order.access)
            tasks.create_task(self._answer_in_lane(place, request, chars, reply, read_at_s))
        else:
            tasks.create_task(self._answer(request, chars, reply, read_at_s))

    def _has_room_for(self, chars: int) -> bool:
        limits = self._limits
        if self._in_flight == 0:
            return True
        return (
            self._in_flight < limits.max_in_flight
            and self._in_flight_chars + chars <= limits.max_in_flight_chars
        )

    async def _answer_in_lane(
        self, place: LanePlace, request: Request, chars: int, reply: Reply, read_at_s: float
    ) -> None:
        """Answer a request when its turn in its lane comes."""
        async with place:
            await self._answer(request, chars, reply, read_at_s)

    async def _answer(self, request: Request, chars: int, reply: Reply, read_at_s: float) -> None:
        """Answer a request now."""
        REQUEST.set((self._id, request.id, request.method))
        context = RequestContext(
            self._id,
            request.method,
            self._jsonrpc or (request.jsonrpc and request.method == "initialize"),
            self.session,
            self._open_session,
            read_at_s,
        )
        try:
            text = await self._requests.dispatch(context, request)
        except BaseException:
            context.answered()
            raise
        finally:
            self._in_flight -= 1
            self._in_flight_chars -= chars
        is_alone = self._in_flight < MANY_IN_FLIGHT
        if is_alone and reply == self._reply and self._outbox.claim():
            try:
                await self._send_now(text)
            finally:
                context.answered()
        elif len(text) > MAX_ANSWER_CHARS and reply == self._reply:
            try:
                await self._outbox.add_large(text)
            finally:
                context.answered()
        else:
            reply(text, context.answered)

    async def _send_now(self, text: str) -> None:
        """Send without waking the write task; that saves a turn of the event loop an answer."""
        try:
            await self._stream.send(text)
        except anyio.BrokenResourceError:
            # The write task ends the conversation then.
            self._outbox.abandon()
        finally:
            self._outbox.release()

    def _reply(self, text: str, then: Action) -> None:
        self.post(text)
        then()

    def _open_session(self, session: ClientSession) -> None:
        self.session = session


def _nothing() -> None:
    pass


def _lane(order: Order, request: Request) -> str | None:
    """Name the lane of a request; None where it keeps no order."""
    if order.access is Access.FREE:
        return None
    if not order.member:
        return order.lane
    value = request.params.get(order.member) if isinstance(request.params, dict) else None
    return f"{order.lane}:{usual_form(value)}" if isinstance(value, str) else None
