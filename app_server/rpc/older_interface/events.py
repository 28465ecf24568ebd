"""Notifications of today as `codex/event/…` of the older interface. No I/O.

Source: docs/older_interface.md, "Events".
"""

from collections.abc import Callable, Mapping
from typing import Any

from pydantic.alias_generators import to_snake

from app_server.rpc.older_interface.history import begun, completed, output_delta
from protocol.model import JsonObject


def event_of(method: str, params: Mapping[str, Any]) -> JsonObject | None:
    """Render what a notification about a thread says; None where there was no word for it."""
    render = _EVENTS.get(method)
    return None if render is None else render(params)


def account_event(method: str, params: Mapping[str, Any]) -> tuple[str, JsonObject] | None:
    """Render a notification about the account: its method and its params; None for any other."""
    match method, params:
        case "account/updated", {"authMode": mode}:
            return "authStatusChange", {"authMethod": mode}
        case "account/login/completed", {"loginId": str() as login, **rest}:
            ended = {"success": rest["success"], "error": rest.get("error")}
            return "loginChatGptComplete", {"loginId": login, **ended}
    return None


def turn_of(params: Mapping[str, Any]) -> str:
    """Return the id of the turn that a notification is about; empty outside of turns."""
    turn = params.get("turn")
    return str(params.get("turnId") or (turn or {}).get("id") or "")


def _over(params: Mapping[str, Any]) -> JsonObject:
    turn = params["turn"]
    if turn["status"] == "interrupted":
        return {"type": "turn_aborted", "reason": "interrupted"}
    texts = [item["text"] for item in turn["items"] if item["type"] == "agentMessage"]
    return {"type": "task_complete", "last_agent_message": texts[-1] if texts else None}


def _error(params: Mapping[str, Any]) -> JsonObject:
    kind = "stream_error" if params["willRetry"] else "error"
    return {"type": kind, "message": params["error"]["message"]}


def _usage(params: Mapping[str, Any]) -> JsonObject:
    usage = params["tokenUsage"]
    info = {
        "total_token_usage": _snake(usage["total"]),
        "last_token_usage": _snake(usage["last"]),
        "model_context_window": usage["modelContextWindow"],
    }
    return {"type": "token_count", "info": info, "rate_limits": None}


def _plan(params: Mapping[str, Any]) -> JsonObject:
    plan = [
        {**step, "status": "in_progress" if step["status"] == "inProgress" else step["status"]}
        for step in params["plan"]
    ]
    return {"type": "plan_update", "explanation": params.get("explanation"), "plan": plan}


def _snake(usage: Mapping[str, Any]) -> JsonObject:
    return {to_snake(name): count for name, count in usage.items()}


def _delta(kind: str) -> Callable[[Mapping[str, Any]], JsonObject]:
    return lambda params: {"type": kind, "delta": params["delta"]}


_EVENTS: Mapping[str, Callable[[Mapping[str, Any]], JsonObject | None]] = {
    "turn/started": lambda params: {"type": "task_started", "model_context_window": None},
    "turn/completed": _over,
    "item/started": lambda params: begun(params["item"]),
    "item/completed": lambda params: completed(params["item"]),
    "item/agentMessage/delta": _delta("agent_message_delta"),
    "item/reasoning/summaryTextDelta": _delta("agent_reasoning_delta"),
    "item/reasoning/textDelta": _delta("agent_reasoning_raw_content_delta"),
    "item/commandExecution/outputDelta": lambda params: output_delta(
        params["itemId"], params["delta"]
    ),
    "turn/diff/updated": lambda params: {"type": "turn_diff", "unified_diff": params["diff"]},
    "turn/plan/updated": _plan,
    "thread/tokenUsage/updated": _usage,
    "error": _error,
    "warning": lambda params: {"type": "warning", "message": params["message"]},
}
