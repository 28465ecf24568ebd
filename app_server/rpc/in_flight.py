"""The requests of one connection that are being worked on, until their answers are on their way.

Source: docs/wire.md, "Order", "Bounds".
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeAlias

import anyio

from app_server.observability.log_context import bind_request
from app_server.rpc.batch import Reply
from app_server.rpc.context import RequestContext
from app_server.rpc.limits import ConnectionLimits
from app_server.rpc.message_stream import MessageStream
from app_server.rpc.ordering import KeyedQueue, LanePlace
from app_server.rpc.outbox import Outbox
from protocol.contract.methods import METHODS
from protocol.contract.specs import FREE, Access, Order
from protocol.jsonrpc.envelope import Request
from protocol.jsonrpc.errors import MAX_ANSWER_CHARS
from protocol.thread_ids import usual_form

Work: TypeAlias = Coroutine[Any, Any, None]

MANY_IN_FLIGHT = 8
"""Requests: the answers of so many go out together, in fewer writes."""


class Requests(Protocol):
    """Who answers requests (rpc.dispatch)."""

    @property
    def services(self) -> object:
        """What handlers get with each request."""

    async def dispatch(self, context: RequestContext[Any], request: Request) -> str:
        """Return the rendered answer."""

    def refused(self, failure: str) -> None:
        """Count an error to what is not dispatched; `failure` is its word."""


class RequestsInFlight:
    """Has requests answered in their order, and each answer sent where it belongs."""

    def __init__(
        self,
        requests: Requests,
        stream: MessageStream,
        outbox: Outbox,
        post: Callable[[str], None],
        limits: ConnectionLimits,
    ) -> None:
        """`post` puts an answer into the outbox, and sees to a client that cannot keep up."""
        self.count = 0
        self.chars = 0
        """Of their texts."""
        self._requests = requests
        self._stream = stream
        self._outbox = outbox
        self._post = post
        self._limits = limits
        self._lanes = KeyedQueue()

    def have_room_for(self, chars: int) -> bool:
        """Whether a request with a text of so many characters may be taken."""
        return self.count == 0 or (
            self.count < self._limits.max_in_flight
            and self.chars + chars <= self._limits.max_in_flight_chars
        )

    def take(
        self,
        context: RequestContext[Any],
        request: Request,
        chars: int,
        batch: Reply | None,
        tasks: asyncio.TaskGroup,
    ) -> Work | None:
        """Have a request answered to the client, or to the `batch` that it belongs to.

        Its place in the order of requests is taken. Returns what must be awaited before the next
        message is read.
        """
        self.count += 1
        self.chars += chars
        spec = METHODS.get(request.method)
        order = FREE if spec is None else spec.order
        if order.access is Access.BARRIER:
            return self._answer_on_reader(context, request, chars, batch)
        lane = None if order.access is Access.FREE else _lane(order, request)
        if lane is None:
            tasks.create_task(self._answer(context, request, chars, batch))
        else:
            place = self._lanes.take_place(lane, order.access)
            tasks.create_task(self._answer_in_lane(place, context, request, chars, batch))
        return None

    async def _answer_on_reader(
        self, context: RequestContext[Any], request: Request, chars: int, batch: Reply | None
    ) -> None:
        """Answer a request on the task that reads, which goes on afterwards."""
        with anyio.CancelScope(shield=True):
            await self._answer(context, request, chars, batch)
        bind_request(None)

    async def _answer_in_lane(
        self,
        place: LanePlace,
        context: RequestContext[Any],
        request: Request,
        chars: int,
        batch: Reply | None,
    ) -> None:
        """Answer a request when its turn in its lane comes."""
        async with place:
            await self._answer(context, request, chars, batch)

    async def _answer(
        self, context: RequestContext[Any], request: Request, chars: int, batch: Reply | None
    ) -> None:
        """Answer a request now."""
        bind_request((context.connection_id, request.id, request.method))
        try:
            text = await self._requests.dispatch(context, request)
        except BaseException:
            context.answered()
            raise
        finally:
            self.count -= 1
            self.chars -= chars
        if batch is not None:
            batch(text, context.answered)
            return
        try:
            if self.count < MANY_IN_FLIGHT and self._outbox.claim():
                await self._send_now(text)
            elif len(text) > MAX_ANSWER_CHARS:
                await self._outbox.add_large(text)
            else:
                self._post(text)
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


def _lane(order: Order, request: Request) -> str | None:
    """Name the lane of a request; None where it keeps no order."""
    if not order.member:
        return order.lane
    value: object = request.params
    for name in order.member.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return f"{order.lane}:{usual_form(value)}" if isinstance(value, str) else None
