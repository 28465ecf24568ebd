"""The conversation with the MCP client: requests, cancelled calls, questions, events.

Invariant: a request gets exactly one answer, but for calls that were cancelled, which get none.
Each request says in which revision of MCP it is: those of 2026-07-28 have it in their `_meta`.
Source: MCP 2025-11-25, "Lifecycle", "Tools", "Elicitation", "Cancellation"; MCP 2026-07-28,
"Versioning", "Multi Round-Trip Requests"; docs/mcp_server.md, "Without a handshake".
"""

import asyncio
import itertools
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import anyio
from pydantic_core import from_json, to_json

from app_server.clients.mcp_front.older import FORWARDED, OlderSide
from app_server.clients.mcp_front.questions import (
    DECLINED,
    ELICITATION,
    METHODS,
    Verdict,
    parse_verdict,
    question_params,
)
from app_server.clients.mcp_front.run import EVENT, Runs, ToolRun
from app_server.clients.mcp_front.tools import TOOLS, BadToolCall, ToolResult, parse_call
from app_server.mcp_wire.errors import PeerError
from app_server.mcp_wire.held_calls import HeldCall, HeldCalls
from app_server.mcp_wire.revisions import NOT_CACHED, STATELESS, client_of, stamped
from app_server.rpc.in_process import AppClient
from app_server.rpc.message_stream import MessageStream
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
from protocol.jsonrpc.errors import (
    METHOD_NOT_FOUND,
    RpcError,
    invalid_params,
    invalid_request,
    overloaded,
)
from protocol.model import Json, JsonObject

logger = logging.getLogger(__name__)

MAX_CHANGES = 64
"""Patches whose changes are kept for a question about them: one for each call that may run."""

PROTOCOL_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""The first is offered to clients that ask for one that is not here."""


@dataclass(frozen=True, slots=True)
class FrontLimits:
    """Bounds of one conversation."""

    max_calls: int = 64
    """Calls that run at a time; one more is answered -32001."""
    finish_s: float = 5.0
    """Seconds for calls to end once the client has finished."""
    send_s: float = 60.0
    """Seconds for the client to read; a slower one counts as gone."""


class Conversation:
    """One MCP client."""

    def __init__(
        self,
        stream: MessageStream,
        app: AppClient,
        version: str,
        limits: FrontLimits,
        open_older: Callable[[], Awaitable[MessageStream]],
    ) -> None:
        """`open_older` begins another conversation with the app-server."""
        self._stream = stream
        self._app = app
        self._version = version
        self._limits = limits
        self._runs = Runs()
        self._calls: dict[RequestId, anyio.CancelScope] = {}
        self._question_ids = itertools.count(1)
        self._answers: dict[RequestId, asyncio.Future[Answer]] = {}
        self._asked: dict[RequestId, anyio.CancelScope] = {}
        self._changes: OrderedDict[str, list[Json]] = OrderedDict()
        """Of items that somebody may be asked about, by their ids; the newest."""
        self._reading = anyio.CancelScope()
        self._gone = False
        self._open_older = open_older
        self._client: JsonObject = {"name": "mcp-client", "version": ""}
        """Client info from the handshake."""
        self._server_info: JsonObject = {
            "name": "codex-mcp-server",
            "title": "Codex",
            "version": version,
        }
        self._is_introduced = False
        """Whether the app-server was told who the client is."""

    async def run(self, when_finished: Callable[[], None]) -> None:
        """Converse until the client has finished, or the app-server has gone.

        `when_finished` is called then; calls that still run are answered, within a bound.
        """
        async with anyio.create_task_group() as self._questions:
            self._older = OlderSide(self._open_older, self._send, self._questions)
            self._questions.start_soon(self._follow_app)
            async with anyio.create_task_group() as self._tool_calls:
                self._held = HeldCalls(self._tool_calls)
                with self._reading:
                    await self._read()
                when_finished()
                self._tool_calls.cancel_scope.deadline = (
                    anyio.current_time() + self._limits.finish_s
                )
            await self._older.aclose()
            self._questions.cancel_scope.cancel()

    async def on_event(self, event: Notification) -> None:
        """Take an event of the app-server."""
        params = event.params if isinstance(event.params, dict) else {}
        if event.method == "serverRequest/resolved":
            if (scope := self._asked.get(params["requestId"])) is not None:
                scope.cancel()
            return
        if event.method == "item/started" and params["item"]["type"] == "fileChange":
            self._changes[params["item"]["id"]] = params["item"]["changes"]
            if len(self._changes) > MAX_CHANGES:
                self._changes.popitem(last=False)
        thread_id = params.get("threadId")
        if isinstance(thread_id, str):
            for run in self._runs.of(thread_id):
                await run.on_event(event)

    async def question(self, question: Request) -> None:
        """Take a question of the app-server."""
        # Not here: while this task writes it does not read, and the other side may do the same.
        self._questions.start_soon(self._answer_question, question)

    async def _follow_app(self) -> None:
        await self._app.run(self)
        self._runs.lose_app()
        self._reading.cancel()

    async def _read(self) -> None:
        with suppress(anyio.EndOfStream):
            while True:
                await self._take(await self._stream.receive())

    async def _take(self, text: str) -> None:
        match parse_message(text):
            case Request() as request if request.method in FORWARDED:
                await self._older.forward(text, self._client)
            case Request() as request:
                await self._take_request(request)
            case Notification("notifications/cancelled", {"requestId": str() | int() as call_id}):
                if (scope := self._calls.get(call_id)) is not None:
                    scope.cancel()
            case Notification() as event:
                logger.debug("notification: %s", event.method)
            case Answer() as answer if await self._older.answered(answer.id, from_json(text)):
                pass
            case Answer() as answer:
                future = self._answers.get(answer.id)
                if future is not None and not future.done():
                    future.set_result(answer)
            case Invalid() as invalid:
                await self._send(render_error(invalid.id, invalid.error.to_wire(), jsonrpc=True))
            case Batch():
                refusal = invalid_request("MCP has no batches", "invalidRequest")
                await self._send(render_error(None, refusal.to_wire(), jsonrpc=True))

    async def _take_request(self, request: Request) -> None:
        try:
            result = await self._answer(request)
        except PeerError as exc:
            error = RpcError(exc.code, exc.message, data=exc.data)
            await self._send(render_error(request.id, error.to_wire(), jsonrpc=True))
            return
        except RpcError as exc:
            await self._send(render_error(request.id, exc.to_wire(), jsonrpc=True))
            return
        if result is not None:
            await self._send(render_result(request.id, result, jsonrpc=True))

    async def _answer(self, request: Request) -> JsonObject | None:
        """Answer at once; None if the answer comes later."""
        params = {} if request.params is None else request.params
        if not isinstance(params, dict):
            raise invalid_params("`params` must be an object")
        if request.method != "initialize":
            found = client_of(params, (STATELESS, *PROTOCOL_VERSIONS))
            if found is not None:
                return await self._answer_stateless(request, params, *found)
        match request.method:
            case "initialize":
                return await self._initialize(params)
            case "ping":
                return {}
            case "tools/list":
                return {"tools": TOOLS}
            case "tools/call":
                self._start_call(request.id, params, None)
                return None
            case method:
                raise RpcError(METHOD_NOT_FOUND, f"Method not found: {method}", "methodNotFound")

    async def _answer_stateless(
        self, request: Request, params: JsonObject, client: Json, capabilities: JsonObject
    ) -> JsonObject | None:
        """Answer a request that names its client, as of a revision without a handshake."""
        if not self._is_introduced:
            await self._introduce(client if isinstance(client, dict) else self._client)
        found: JsonObject
        match request.method:
            case "server/discover":
                found = {"supportedVersions": [STATELESS], "capabilities": {"tools": {}}}
            case "tools/list":
                found = {"tools": TOOLS}
            case "tools/call":
                self._start_call(request.id, params, capabilities)
                return None
            case method:
                raise RpcError(METHOD_NOT_FOUND, f"Method not found: {method}", "methodNotFound")
        return stamped({**found, **NOT_CACHED}, self._server_info)

    async def _initialize(self, params: JsonObject) -> JsonObject:
        asked = params.get("protocolVersion")
        if not self._is_introduced:
            # A client that was impatient with `server/discover` shakes hands after it.
            await self._introduce(params.get("clientInfo"))
        return {
            "protocolVersion": asked if asked in PROTOCOL_VERSIONS else PROTOCOL_VERSIONS[0],
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": self._server_info,
        }

    async def _introduce(self, client: Json) -> None:
        if isinstance(client, dict):
            self._client = client
        handshake: JsonObject = {
            "clientInfo": client,
            "capabilities": {"experimentalApi": True},
        }
        answer = await self._app.call("initialize", handshake)
        await self._app.notify("initialized")
        self._server_info["user_agent"] = answer["userAgent"]
        self._is_introduced = True

    def _start_call(
        self, call_id: RequestId, params: JsonObject, capabilities: JsonObject | None
    ) -> None:
        """Start a call; `capabilities` are those of a client without a handshake."""
        if call_id in self._calls:
            raise invalid_request("a call with this id is running", "invalidRequest")
        if len(self._calls) >= self._limits.max_calls:
            raise overloaded()
        # Entered here, so that a call can be cancelled before its task has run.
        self._calls[call_id] = anyio.CancelScope()
        self._tool_calls.start_soon(self._call, call_id, params, capabilities)

    async def _call(
        self, call_id: RequestId, params: JsonObject, capabilities: JsonObject | None
    ) -> None:
        try:
            with self._calls[call_id] as scope:
                carry_out = partial(self._carry_out, call_id, params)
                try:
                    if capabilities is None:
                        result = await carry_out(None)
                    else:
                        result = await self._held.call(params, capabilities, carry_out)
                        result = stamped(result, self._server_info)
                    answer = render_result(call_id, result, jsonrpc=True)
                except PeerError as exc:
                    error = RpcError(exc.code, exc.message, data=exc.data)
                    answer = render_error(call_id, error.to_wire(), jsonrpc=True)
                if not scope.cancel_called:
                    await self._send(answer)
        finally:
            del self._calls[call_id]

    async def _carry_out(
        self, call_id: RequestId, params: JsonObject, held: HeldCall | None
    ) -> JsonObject:
        try:
            arguments = parse_call(params.get("name"), params.get("arguments"))
        except BadToolCall as exc:
            return ToolResult(str(exc), is_error=True).to_wire()
        run = ToolRun(call_id, self._app, self._runs, partial(self._send_message, EVENT), held)
        return (await run.carry_out(arguments)).to_wire()

    async def _answer_question(self, question: Request) -> None:
        # The app-server may go while it is asked, or while it is answered.
        with suppress(RpcError), anyio.CancelScope() as scope:
            if question.method not in METHODS:
                refusal = RpcError(METHOD_NOT_FOUND, f"Method not found: {question.method}")
                await self._app.refuse(question.id, refusal)
                return
            runs = self._runs.of(question.params["threadId"])
            if not runs:
                await self._app.answer(question.id, DECLINED.answer_to(question.method))
                return
            self._asked[question.id] = scope
            try:
                changes = self._changes.get(question.params.get("itemId"), [])
                params = question_params(question, runs[0].request_id, changes)
                verdict = await self._verdict(runs[0].held, params)
            finally:
                del self._asked[question.id]
            if verdict.ends_turn and question.method == ELICITATION:
                # First, or the model would be asked once more.
                await runs[0].interrupt()
            await self._app.answer(question.id, verdict.answer_to(question.method))

    async def _verdict(self, held: HeldCall | None, params: JsonObject) -> Verdict:
        """Ask the client, by the result of its call where that is the way to."""
        if held is not None:
            if not held.can_be_asked(params):
                return DECLINED
            return parse_verdict(await held.elicit(params))
        answer = await self._ask(params)
        return DECLINED if answer.error is not None else parse_verdict(answer.result)

    async def _ask(self, params: JsonObject) -> Answer:
        """Put a question to the client; cancelling withdraws it."""
        question_id = next(self._question_ids)
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._answers[question_id] = future
        try:
            await self._send_message("elicitation/create", params, id=question_id)
            return await future
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True), anyio.move_on_after(self._limits.finish_s):
                await self._send_message("notifications/cancelled", {"requestId": question_id})
            raise
        finally:
            del self._answers[question_id]

    async def _send_message(self, method: str, params: JsonObject, **members: Json) -> None:
        message = {"jsonrpc": "2.0", **members, "method": method, "params": params}
        await self._send(to_json(message).decode())

    async def _send(self, text: str) -> None:
        if self._gone:
            return
        with suppress(anyio.BrokenResourceError), anyio.move_on_after(self._limits.send_s):
            await self._stream.send(text)
            return
        # Nobody reads any more: the same as if the client had finished.
        self._gone = True
        self._reading.cancel()
