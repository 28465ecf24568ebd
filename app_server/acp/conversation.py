"""The conversation with one client of ACP: its messages in and out, in order and within bounds.

Invariant: a request gets exactly one answer. Messages go out in the order of their posting.
Source: https://agentclientprotocol.com/protocol/v1/overview; docs/acp.md, "Bounds".
"""

import asyncio
import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import anyio
import anyio.abc
from pydantic_core import to_json

from app_server.rpc.message_stream import ClientGone, MessageStream
from protocol.jsonrpc.envelope import (
    Answer,
    Batch,
    Invalid,
    Notification,
    Request,
    RequestId,
    parse_message,
    render_error,
    render_result,
)
from protocol.jsonrpc.errors import RpcError, internal_error, invalid_request, overloaded
from protocol.model import JsonObject

logger = logging.getLogger(__name__)

REQUEST_CANCELLED = -32800
CANCEL_REQUEST = "$/cancel_request"


@dataclass(frozen=True, slots=True)
class AcpLimits:
    """Bounds of one conversation."""

    max_requests: int = 64
    """That are worked on at a time; one more is answered -32001."""
    max_sessions: int = 64
    """Open at a time; one more is refused."""
    max_waiting: int = 256
    """Messages for the client; while as many wait, no events of threads are read."""
    finish_s: float = 5.0
    """Seconds for requests after the client has finished sending."""
    send_s: float = 60.0
    """Seconds for the client to read; a slower one counts as gone."""


USUAL_LIMITS = AcpLimits()


class Methods(Protocol):
    """Methods of an agent."""

    async def answer(self, request: Request, reply: Callable[[JsonObject], None]) -> None:
        """Answer a request, by one call of `reply`.

        Raises:
            RpcError: the answer is this error.
        """

    async def take(self, notification: Notification) -> None:
        """Take a notification; returns soon."""


class AcpConversation:
    """Pipe of requests, answers and notifications to one client."""

    def __init__(self, stream: MessageStream, limits: AcpLimits) -> None:
        self._stream = stream
        self._limits = limits
        self.has_gone = False
        """Whether the client asks for nothing any more; set before its requests are cancelled."""
        self._ids = itertools.count(1)
        self._asked: dict[RequestId, asyncio.Future[Answer]] = {}
        self._running: dict[RequestId, anyio.CancelScope] = {}
        self._waiting: list[str] = []
        """Messages for the client, the oldest first."""
        self._has_waiting = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._is_written = asyncio.Event()
        """Whether the client has taken all."""
        self._is_written.set()

    async def run(self, methods: Methods) -> None:
        """Converse until the client has gone; what runs then is cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._write, tasks.cancel_scope)
            async with anyio.create_task_group() as requests:
                try:
                    while True:
                        await self._take(await self._stream.receive(), methods, requests)
                except ClientGone:
                    self.has_gone = True
                    tasks.cancel_scope.cancel()
                except anyio.EndOfStream:
                    self.has_gone = True
                    requests.cancel_scope.deadline = anyio.current_time() + self._limits.finish_s
            await self._is_written.wait()
            tasks.cancel_scope.cancel()

    def notify(self, method: str, params: JsonObject) -> None:
        """Send a notification, behind all that waits."""
        self._post(to_json({"jsonrpc": "2.0", "method": method, "params": params}).decode())

    async def wait_for_room(self) -> None:
        """Wait while the client is behind."""
        await self._has_room.wait()

    async def ask(self, method: str, params: JsonObject) -> Answer:
        """Send a request and wait for its answer; cancelling withdraws it."""
        number = next(self._ids)
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._asked[number] = future
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        self._post(to_json(message).decode())
        try:
            return await future
        finally:
            del self._asked[number]
            if not future.done() or future.cancelled():
                self.notify(CANCEL_REQUEST, {"requestId": number})

    async def _take(self, text: str, methods: Methods, requests: anyio.abc.TaskGroup) -> None:
        match parse_message(text):
            case Request() as request if len(self._running) >= self._limits.max_requests:
                self._refuse(request.id, overloaded())
            case Request() as request if request.id in self._running:
                rule = "`id` is that of a request that is not answered yet"
                self._refuse(request.id, invalid_request(f"Invalid request: {rule}", "sameId"))
            case Request() as request:
                self._running[request.id] = scope = anyio.CancelScope()
                requests.start_soon(self._answer, request, scope, methods)
            case Notification("$/cancel_request", {"requestId": str() | int() as number}):
                if (running := self._running.get(number)) is not None:
                    running.cancel()
            case Notification() as notification:
                await methods.take(notification)
            case Answer() as answer:
                future = self._asked.get(answer.id)
                if future is not None and not future.done():
                    future.set_result(answer)
            case Invalid() as invalid:
                self._refuse(invalid.id, invalid.error)
            case Batch():
                self._refuse(None, invalid_request("ACP has no batches", "invalidRequest"))

    async def _answer(self, request: Request, scope: anyio.CancelScope, methods: Methods) -> None:
        is_answered = False

        def reply(result: JsonObject) -> None:
            nonlocal is_answered
            is_answered = True
            self._post(render_result(request.id, result, jsonrpc=True))

        try:
            with scope:
                await methods.answer(request, reply)
            if scope.cancelled_caught and not is_answered:
                self._refuse(request.id, RpcError(REQUEST_CANCELLED, "Request cancelled"))
        except RpcError as exc:
            if not is_answered:
                self._refuse(request.id, exc)
        except Exception:
            logger.exception("a request of ACP failed: %s", request.method)
            if not is_answered:
                self._refuse(request.id, internal_error("the request failed; the log says why"))
        finally:
            self._running.pop(request.id, None)

    def _refuse(self, request_id: RequestId | None, error: RpcError) -> None:
        self._post(render_error(request_id, error.to_wire(), jsonrpc=True))

    def _post(self, text: str) -> None:
        self._waiting.append(text)
        self._has_waiting.set()
        self._is_written.clear()
        if len(self._waiting) >= self._limits.max_waiting:
            self._has_room.clear()

    async def _write(self, everything: anyio.CancelScope) -> None:
        try:
            while True:
                await self._has_waiting.wait()
                self._has_waiting.clear()
                texts, self._waiting = self._waiting, []
                with anyio.fail_after(self._limits.send_s):
                    await self._stream.send(*texts)
                self._has_room.set()
                if not self._waiting:
                    self._is_written.set()
        except (anyio.BrokenResourceError, TimeoutError):
            logger.info("the client of ACP has gone, or reads nothing any more")
            self.has_gone = True
            everything.cancel()
