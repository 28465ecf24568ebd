"""Our side of a JSON-RPC conversation with an MCP server: ids, answers, progress, giving up.

Knows: messages and two streams of them. Does not know: transports, methods, sessions.
The SDK's dispatcher does the same for servers too, with spans for tracing, at five times the cost.
Source: JSON-RPC 2.0; MCP 2025-06-18, "Cancellation", "Progress"; docs/mcp.md, "Connections".
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterable, Awaitable, Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import anyio
from anyio.abc import TaskGroup, TaskStatus

from app_server.mcp_wire.errors import (
    PeerError,
    ProgressCallback,
    RequestRefused,
    RequestTimedOut,
    TransportClosed,
)
from app_server.mcp_wire.messages import (
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
    SessionMessage,
)
from protocol.jsonrpc.errors import INTERNAL_ERROR
from protocol.model import Json, JsonObject

logger = logging.getLogger(__name__)

GIVE_UP_S = 5.0
"""For the server to take the notification that a request is cancelled."""

MAX_ASKED = 64
"""Requests of the server that are being answered for one asker; those above it are refused."""

MAX_REPORTING = 1000
"""Pieces of progress that are being passed on for one asker; those above it are dropped."""

MAX_ID_DIGITS = 18
"""Of an id of ours; what is longer is none."""

CANCELLED = "notifications/cancelled"
PROGRESS = "notifications/progress"


class Asker(Protocol):
    """Takes what a server says to people: questions, and messages of its log."""

    async def elicit(self, params: JsonObject, caller: "Caller | None") -> JsonObject:
        """Ask the user what the server wants to know; see ElicitationPort.

        The question belongs to a call of `caller`; None: it names no call.
        """

    def logged(self, line: bytes, caller: "Caller | None") -> None:
        """Keep a message of the server's log; `caller` as with questions."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request, for what the server asks on account of it."""

    asker: Asker
    turn_id: str | None = None
    """None: it was called in no turn."""


Answer: TypeAlias = Callable[[str, JsonObject, Caller | None], Awaitable[JsonObject | None]]
"""Answers a request of the server, or raises RequestRefused; with the caller that it belongs to, if
the transport says which. None is not sent."""

OnNotification: TypeAlias = Callable[[str, JsonObject, Caller | None], None]
"""Called with the method and the params of each notification, and with the caller that it belongs
to, if the transport says which."""

STRAY = "answer without a request"
"""Called in place of a method for an answer to a request that was never made."""

TOO_MANY = "more requests than are answered"
"""Called in place of a method for a request that is refused for that."""

FLOOD = "more progress than is passed on"
"""Called in place of a method for progress that is dropped."""


class MessageSink(Protocol):
    """Takes messages to the server."""

    async def send(self, item: SessionMessage, /) -> None:
        """Send one message.

        Raises:
            anyio.BrokenResourceError, anyio.ClosedResourceError: it cannot be sent.
        """


@dataclass(slots=True)
class _Waiter:
    method: str
    answered: asyncio.Future[JSONRPCResponse | JSONRPCError | None]
    """Without an answer when the conversation is over."""
    on_progress: ProgressCallback | None
    caller: Caller | None

    @property
    def asker(self) -> Asker | None:
        """Of the caller, if that is known."""
        return None if self.caller is None else self.caller.asker


class JsonRpcClient:
    """One conversation, from `run` to the end of what comes in."""

    def __init__(
        self, incoming: AsyncIterable[SessionMessage | Exception], outgoing: MessageSink
    ) -> None:
        """Read from the one stream and write to the other."""
        self.give_up_s = GIVE_UP_S
        """Seconds for the server to take the notification that a request is cancelled."""
        self.max_asked = MAX_ASKED
        """Requests of the server that are being answered for one asker; others are refused."""
        self.max_reporting = MAX_REPORTING
        """Pieces of progress that are being passed on for one asker; others are dropped."""
        self._incoming = incoming
        self._outgoing = outgoing
        self._last_id = 0
        self._waiting: dict[RequestId | None, _Waiter] = {}
        self._asked: dict[RequestId, anyio.CancelScope] = {}
        self._answering: Counter[Asker | None] = Counter()
        """Requests of the server, also those with an id that another one has, and those whose
        answer waits for a server that does not read."""
        self._reporting: Counter[Asker | None] = Counter()
        """Pieces of progress whose callers have not taken them yet."""
        self._is_over = False

    async def run(
        self, answer: Answer, on_notification: OnNotification, *, task_status: TaskStatus[None]
    ) -> None:
        """Take what comes in until it ends; `call` works once this has started.

        Then, or when this is cancelled, calls that wait fail, and answers under way are dropped.
        """
        try:
            async with anyio.create_task_group() as tasks:
                task_status.started()
                async for item in self._incoming:
                    if isinstance(item, Exception):
                        logger.debug("a message makes no sense: %s", type(item).__name__)
                    else:
                        await self._take(item, answer, on_notification, tasks)
                self._end()
                tasks.cancel_scope.cancel()
        finally:
            self._end()

    def _end(self) -> None:
        self._is_over = True
        for waiter in self._waiting.values():
            if not waiter.answered.done():
                waiter.answered.set_result(None)

    async def call(
        self,
        method: str,
        params: JsonObject,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        on_progress: ProgressCallback | None = None,
        caller: Caller | None = None,
        may_cancel: bool = True,
    ) -> JsonObject:
        """Make a request and return its result.

        `headers` are for transports that have them. `caller` is passed on with what the server asks
        in the response; the bounds of what a server may ask and report hold for each asker. The
        time begins when the request was sent. When it is over, or the caller is cancelled, the
        server is notified, unless `may_cancel` is false.

        Raises:
            PeerError: the server answered with an error.
            RequestTimedOut, TransportClosed: it did not answer.
            ServerNotReading: see ServerProcess.
        """
        if self._is_over:
            raise TransportClosed
        self._last_id += 1
        request_id = self._last_id
        if on_progress is not None:
            meta = {**(params.get("_meta") or {}), "progressToken": request_id}
            params = {**params, "_meta": meta}
        waiter = _Waiter(method, asyncio.get_running_loop().create_future(), on_progress, caller)
        self._waiting[request_id] = waiter
        try:
            await self._send(_request(request_id, method, params), headers)
            with nullcontext() if timeout_s is None else anyio.fail_after(timeout_s):
                answer = await waiter.answered
        except (TimeoutError, anyio.get_cancelled_exc_class()) as exc:
            if may_cancel:
                await self._give_up(request_id)
            if isinstance(exc, TimeoutError) and timeout_s is not None:
                raise RequestTimedOut(method, timeout_s) from None
            raise
        finally:
            del self._waiting[request_id]
        if answer is None:
            raise TransportClosed
        if isinstance(answer, JSONRPCError):
            error = answer.error
            raise PeerError(error.code, error.message, error.data)
        return answer.result

    async def notify(self, method: str, headers: Mapping[str, str] | None = None) -> None:
        """Send a notification without parameters; one that cannot be sent is dropped."""
        await self._send_if_open(JSONRPCNotification(jsonrpc="2.0", method=method), headers)

    async def _give_up(self, request_id: int) -> None:
        params = {"requestId": request_id, "reason": "nobody waits for the answer any more"}
        message = JSONRPCNotification(jsonrpc="2.0", method=CANCELLED, params=params)
        with anyio.move_on_after(self.give_up_s, shield=True):
            await self._send_if_open(message)

    async def _send(self, message: JSONRPCMessage, headers: Mapping[str, str] | None) -> None:
        try:
            await self._outgoing.send(SessionMessage(message, headers))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as exc:
            raise TransportClosed from exc

    async def _send_if_open(
        self, message: JSONRPCMessage, headers: Mapping[str, str] | None = None
    ) -> None:
        try:
            await self._send(message, headers)
        except TransportClosed:
            logger.debug("a message to a server was dropped")

    async def _take(
        self,
        item: SessionMessage,
        answer: Answer,
        on_notification: OnNotification,
        tasks: TaskGroup,
    ) -> None:
        match message := item.message:
            case JSONRPCRequest():
                waiter = self._waiting.get(item.in_response_to)
                asker = None if waiter is None else waiter.asker
                if self._answering[asker] >= self.max_asked:
                    on_notification(TOO_MANY, {}, None)
                    reply = _refusal(message.id, INTERNAL_ERROR, "too many requests at a time")
                    await self._send_if_open(reply)
                    return
                scope = self._asked[message.id] = anyio.CancelScope()
                self._answering[asker] += 1
                caller = None if waiter is None else waiter.caller
                tasks.start_soon(self._answer, message, answer, caller, scope)
            case JSONRPCNotification():
                waiter = self._waiting.get(item.in_response_to)
                caller = None if waiter is None else waiter.caller
                self._notified(message, caller, on_notification, tasks)
            case _:
                our_id = _our_id(message.id)
                waiter = self._waiting.get(our_id)
                if waiter is not None and not waiter.answered.done():
                    waiter.answered.set_result(message)
                elif not isinstance(our_id, int) or not 0 < our_id <= self._last_id:
                    on_notification(STRAY, {}, None)

    def _notified(
        self,
        message: JSONRPCNotification,
        caller: Caller | None,
        on_notification: OnNotification,
        tasks: TaskGroup,
    ) -> None:
        params = message.params or {}
        if message.method == CANCELLED and isinstance(params.get("requestId"), str | int):
            scope = self._asked.get(params["requestId"])
            if scope is not None:
                scope.cancel()
        elif message.method == PROGRESS:
            token, progress = params.get("progressToken"), params.get("progress")
            waiter = self._waiting.get(_our_id(token)) if isinstance(token, str | int) else None
            if waiter is not None and _is_number(progress):
                is_taken = self._begin_report(waiter, params, tasks)
                if not is_taken:
                    on_notification(FLOOD, {}, waiter.caller)
        on_notification(message.method, params, caller)

    def _begin_report(self, waiter: _Waiter, params: JsonObject, tasks: TaskGroup) -> bool:
        """Pass a piece of progress on, if it is wanted; False: it is dropped."""
        if waiter.on_progress is None:
            return True
        if self._reporting[waiter.asker] >= self.max_reporting:
            return False
        self._reporting[waiter.asker] += 1
        tasks.start_soon(self._report, waiter.on_progress, waiter.asker, params)
        return True

    def method_of(self, request_id: Json) -> str | None:
        """Return the method of a request of ours that is not answered yet; None: there is none."""
        our_id = _our_id(request_id) if isinstance(request_id, int | str) else None
        waiter = self._waiting.get(our_id)
        return None if waiter is None else waiter.method

    async def _report(
        self, on_progress: ProgressCallback, asker: Asker | None, params: JsonObject
    ) -> None:
        total, message = params.get("total"), params.get("message")
        try:
            await on_progress(
                float(params["progress"]),
                float(total) if total is not None and _is_number(total) else None,
                message if isinstance(message, str) else None,
            )
        except Exception:
            logger.exception("progress of a call was not passed on")
        finally:
            _count_down(self._reporting, asker)

    async def _answer(
        self,
        request: JSONRPCRequest,
        answer: Answer,
        caller: Caller | None,
        scope: anyio.CancelScope,
    ) -> None:
        try:
            reply = await self._reply(request, answer, caller, scope)
            # The server wants no answer to a request that it has cancelled.
            if reply is not None:
                await self._send_if_open(reply)
        finally:
            _count_down(self._answering, None if caller is None else caller.asker)

    async def _reply(
        self,
        request: JSONRPCRequest,
        answer: Answer,
        caller: Caller | None,
        scope: anyio.CancelScope,
    ) -> JSONRPCMessage | None:
        reply: JSONRPCMessage | None = None
        try:
            with scope:
                result = await answer(request.method, request.params or {}, caller)
                if result is not None:
                    reply = JSONRPCResponse(jsonrpc="2.0", id=request.id, result=result)
        except RequestRefused as exc:
            reply = _refusal(request.id, exc.code, str(exc))
        except Exception:
            logger.exception("a request of a server was not answered: %s", request.method)
            reply = _refusal(request.id, INTERNAL_ERROR, "Internal error")
        finally:
            if self._asked.get(request.id) is scope:
                del self._asked[request.id]
        return reply


def _count_down(counts: Counter[Asker | None], asker: Asker | None) -> None:
    counts[asker] -= 1
    if not counts[asker]:
        del counts[asker]


def _refusal(request_id: RequestId, code: int, message: str) -> JSONRPCError:
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=code, message=message))


def _request(request_id: int, method: str, params: JsonObject) -> JSONRPCRequest:
    # Members that are not given are left out; null is not allowed.
    if params:
        return JSONRPCRequest(jsonrpc="2.0", id=request_id, method=method, params=params)
    return JSONRPCRequest(jsonrpc="2.0", id=request_id, method=method)


def _our_id(found: RequestId | None) -> RequestId | None:
    """Take an id that came back as a string for the number that it was."""
    if isinstance(found, str) and len(found) <= MAX_ID_DIGITS and found.isdecimal():
        return int(found)
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
