"""One call of a tool: a turn of a thread, from its start to its one result.

Source: docs/mcp_server.md, "Tools", "Events".
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias

import anyio

from app_server.clients.mcp_front.tools import (
    BadToolCall,
    CodexArguments,
    ReplyArguments,
    ToolResult,
)
from app_server.mcp_wire.held_calls import HeldCall
from app_server.rpc.in_process import AppClient
from protocol.jsonrpc.envelope import Notification, RequestId
from protocol.jsonrpc.errors import RpcError
from protocol.model import Json, JsonObject

EVENT = "codex/event"


def event_params(
    request_id: RequestId, thread_id: str, event_id: str, msg: JsonObject
) -> JsonObject:
    """Render the params of one `codex/event`; `event_id` is the turn's, or empty."""
    return {
        "_meta": {"requestId": request_id, "threadId": thread_id},
        "id": event_id,
        "msg": msg,
    }


def session_configured(thread: JsonObject) -> JsonObject:
    """Render the event of a thread that was started or resumed, from the answer to that."""
    return {
        "type": "session_configured",
        "session_id": thread["thread"]["id"],
        "model": thread["model"],
        "model_provider_id": thread["modelProvider"],
        "approval_policy": thread["approvalPolicy"],
        "cwd": thread["cwd"],
        "rollout_path": thread["thread"].get("path"),
    }


def message_of(method: str, params: JsonObject, last_text: str | None) -> JsonObject | None:
    """Translate an event; None for events without a counterpart here.

    `last_text` is the last message of the model in this turn.
    """
    if method == "turn/completed":
        return _turn_over(params["turn"], last_text)
    translate = _MESSAGES.get(method)
    return None if translate is None else translate(params)


def _turn_over(turn: JsonObject, last_text: str | None) -> JsonObject:
    if turn["status"] == "interrupted":
        return {"type": "turn_aborted", "turn_id": turn["id"], "reason": "interrupted"}
    return {"type": "task_complete", "turn_id": turn["id"], "last_agent_message": last_text}


def _item(kind: str) -> Callable[[JsonObject], JsonObject]:
    return lambda params: {
        "type": kind,
        "thread_id": params["threadId"],
        "turn_id": params["turnId"],
        "item": params["item"],
    }


def _delta(kind: str) -> Callable[[JsonObject], JsonObject]:
    return lambda params: {
        "type": kind,
        "thread_id": params["threadId"],
        "turn_id": params["turnId"],
        "item_id": params["itemId"],
        "delta": params["delta"],
    }


def _usage(params: JsonObject) -> JsonObject:
    usage = params["tokenUsage"]
    info: JsonObject = {
        "total_token_usage": _snake(usage["total"]),
        "last_token_usage": _snake(usage["last"]),
        "model_context_window": usage["modelContextWindow"],
    }
    return {"type": "token_count", "info": info}


def _snake(usage: Mapping[str, Json]) -> JsonObject:
    return {re.sub("[A-Z]", lambda m: f"_{m[0].lower()}", name): n for name, n in usage.items()}


def _error(params: JsonObject) -> JsonObject:
    kind = "stream_error" if params["willRetry"] else "error"
    return {"type": kind, "message": params["error"]["message"]}


def _startup(params: JsonObject) -> JsonObject:
    status: JsonObject = {"state": params["status"]}
    if params.get("error") is not None:
        status["error"] = params["error"]
    return {"type": "mcp_startup_update", "server": params["name"], "status": status}


_MESSAGES: Mapping[str, Callable[[JsonObject], JsonObject]] = {
    "turn/started": lambda params: {"type": "task_started", "turn_id": params["turn"]["id"]},
    "item/started": _item("item_started"),
    "item/completed": _item("item_completed"),
    "item/agentMessage/delta": _delta("agent_message_content_delta"),
    "item/reasoning/summaryTextDelta": _delta("reasoning_content_delta"),
    "item/reasoning/textDelta": _delta("reasoning_raw_content_delta"),
    "thread/tokenUsage/updated": _usage,
    "error": _error,
    "warning": lambda params: {"type": "warning", "message": params["message"]},
    "mcpServer/startupStatus/updated": _startup,
}


INTERRUPT_S = 10.0
"""Seconds that a cancelled call waits for the end of its turn."""

SendEvent: TypeAlias = Callable[[JsonObject], Awaitable[None]]
"""Sends the params of a `codex/event`."""

_UNKNOWN_THREAD = ("threadNotFound", "invalidThreadId")


class Runs:
    """Which calls are sent the events of which thread."""

    def __init__(self) -> None:
        self._of_thread: dict[str, list[ToolRun]] = {}

    def of(self, thread_id: str) -> Sequence["ToolRun"]:
        """Return the calls of a thread, the oldest first."""
        return tuple(self._of_thread.get(thread_id, ()))

    def join(self, thread_id: str, run: "ToolRun") -> None:
        """Send a call the events of a thread from now on."""
        self._of_thread.setdefault(thread_id, []).append(run)

    def leave(self, thread_id: str, run: "ToolRun") -> bool:
        """Send it no more; returns whether it was the last one."""
        runs = self._of_thread[thread_id]
        runs.remove(run)
        if not runs:
            del self._of_thread[thread_id]
        return not runs

    def lose_app(self) -> None:
        """End all calls: the app-server has gone."""
        for runs in self._of_thread.values():
            for run in runs:
                run.lose_app()


class ToolRun:
    """One call. `request_id` is the caller's."""

    def __init__(
        self,
        request_id: RequestId,
        app: AppClient,
        runs: Runs,
        send_event: SendEvent,
        held: HeldCall | None = None,
    ) -> None:
        """`held` is the call where its client is asked by its result; see HeldCall."""
        self.request_id = request_id
        self.held = held
        self._app = app
        self._runs = runs
        self._send_event = send_event
        self._named_thread_id: str | None = None
        self._thread_id: str | None = None
        self._thread: JsonObject = {}
        self._turn_id: str | None = None
        self._turn: JsonObject | None = None
        self._text: str | None = None
        self._over = anyio.Event()

    async def carry_out(self, arguments: CodexArguments | ReplyArguments) -> ToolResult:
        """Run the turn and wait for its end. Cancelling interrupts the turn."""
        try:
            # Whoever cancels now gets a turn that is interrupted, not one that nobody knows of.
            with anyio.CancelScope(shield=True):
                await self._begin(arguments)
            await self._over.wait()
            return self._result()
        except (BadToolCall, RpcError) as exc:
            thread_id = self._thread_id or self._named_thread_id
            return ToolResult(str(exc), thread_id, is_error=True)
        finally:
            with anyio.CancelScope(shield=True):
                await self._leave()

    async def on_event(self, event: Notification) -> None:
        """Take an event of the thread."""
        assert self._thread_id is not None
        params: JsonObject = event.params
        turn: JsonObject = params.get("turn") or {}
        turn_id = turn.get("id") or params.get("turnId") or ""
        if event.method == "item/completed" and turn_id == self._turn_id:
            item: JsonObject = params["item"]
            self._text = item["text"] if item["type"] == "agentMessage" else self._text
        msg = message_of(event.method, params, self._text)
        if msg is not None:
            await self._send_event(event_params(self.request_id, self._thread_id, turn_id, msg))
        if event.method == "turn/completed" and turn_id == self._turn_id:
            self._turn = turn
            self._over.set()

    async def interrupt(self) -> None:
        """Interrupt the turn, if it still runs."""
        if self._turn_id is not None and not self._over.is_set():
            turn: JsonObject = {"threadId": self._thread_id, "turnId": self._turn_id}
            # It may have ended meanwhile, and so may the app-server.
            with suppress(RpcError):
                await self._app.call("turn/interrupt", turn)

    def lose_app(self) -> None:
        """End the call: the app-server has gone."""
        self._over.set()

    async def _begin(self, arguments: CodexArguments | ReplyArguments) -> None:
        if isinstance(arguments, CodexArguments):
            await self._app.call("thread/start", arguments.thread_params(), self._join)
        else:
            self._named_thread_id = arguments.thread()
            await self._resume(self._named_thread_id)
        assert self._thread_id is not None
        configured = session_configured(self._thread)
        await self._send_event(event_params(self.request_id, self._thread_id, "", configured))
        content = [{"type": "text", "text": arguments.prompt}]
        await self._app.call(
            "turn/start", {"threadId": self._thread_id, "input": content}, self._take_turn
        )

    async def _resume(self, thread_id: str) -> None:
        params: JsonObject = {"threadId": thread_id, "excludeTurns": True}
        try:
            await self._app.call("thread/resume", params, self._join)
        except RpcError as exc:
            word = exc.data.get("code") if isinstance(exc.data, dict) else None
            if word not in _UNKNOWN_THREAD:
                raise
            raise BadToolCall(f"Session not found for thread_id: {thread_id}") from exc

    def _join(self, result: Json) -> None:
        thread_id: str = result["thread"]["id"]
        self._thread, self._thread_id = result, thread_id
        self._runs.join(thread_id, self)

    def _take_turn(self, result: Json) -> None:
        self._turn_id = result["turn"]["id"]

    def _result(self) -> ToolResult:
        if self._turn is None:
            return ToolResult("The app-server has stopped", self._thread_id, is_error=True)
        error = self._turn.get("error")
        match self._turn["status"]:
            case "completed":
                return ToolResult(self._text or "", self._thread_id)
            case "interrupted" if error is None:
                return ToolResult("The turn was interrupted", self._thread_id, is_error=True)
            case _:
                text = "The turn failed" if error is None else str(error["message"])
                return ToolResult(text, self._thread_id, is_error=True)

    async def _leave(self) -> None:
        if self._thread_id is None:
            return
        with anyio.move_on_after(INTERRUPT_S):
            await self.interrupt()
            if self._turn_id is not None:
                await self._over.wait()
        if self._runs.leave(self._thread_id, self):
            # So that the thread can leave memory; a reply resumes it.
            with anyio.move_on_after(INTERRUPT_S), suppress(RpcError):
                await self._app.call("thread/unsubscribe", {"threadId": self._thread_id})
