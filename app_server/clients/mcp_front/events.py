"""From events of the app-server to `codex/event` notifications. No I/O.

Source: docs/mcp_server.md, "Events".
"""

import re
from collections.abc import Callable, Mapping

from protocol.jsonrpc.envelope import RequestId
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
