"""Items, approvals and notifications of today in the words of the older interface. No I/O.

Items as messages; approvals as `execCommandApproval` and `applyPatchApproval`, and the decisions
back; notifications as `codex/event/…`.
Source: docs/older_interface.md, "Events", "Approvals".
"""

import base64
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic.alias_generators import to_snake

from protocol.model import Json, JsonObject


def messages_of(turns: Sequence[Any]) -> list[JsonObject]:
    """Render what was said in turns, as a conversation that is resumed begins with."""
    messages = [completed(item) for turn in turns for item in turn.get("items") or []]
    return [message for message in messages if message is not None]


def begun(item: JsonObject) -> JsonObject | None:
    """Render the beginning of an item; None for a type without such a message."""
    call = {"call_id": item["id"]}
    match item["type"]:
        case "commandExecution":
            return {
                "type": "exec_command_begin",
                **call,
                "command": words(item["command"]),
                "cwd": item["cwd"],
                "parsed_cmd": [parsed(action) for action in item["commandActions"]],
            }
        case "fileChange":
            return {
                "type": "patch_apply_begin",
                **call,
                "auto_approved": False,
                "changes": changes(item["changes"]),
            }
        case "mcpToolCall":
            return {"type": "mcp_tool_call_begin", **call, "invocation": _invocation(item)}
    return None


def completed(item: JsonObject) -> JsonObject | None:
    """Render a completed item; None for a type without such a message."""
    call = {"call_id": item["id"]}
    match item["type"]:
        case "userMessage":
            texts = [part["text"] for part in item["content"] if part["type"] == "text"]
            return {"type": "user_message", "message": "\n".join(texts), "kind": "plain"}
        case "agentMessage":
            return {"type": "agent_message", "message": item["text"]}
        case "reasoning":
            return {"type": "agent_reasoning", "text": "\n".join(item.get("summary") or [])}
        case "commandExecution":
            output = item.get("aggregatedOutput") or ""
            return {
                "type": "exec_command_end",
                **call,
                "stdout": output,
                "stderr": "",
                "aggregated_output": output,
                "exit_code": -1 if item.get("exitCode") is None else item["exitCode"],
                "duration": _duration(item.get("durationMs")),
                "formatted_output": output,
            }
        case "fileChange":
            done = item["status"] == "completed"
            return {"type": "patch_apply_end", **call, "stdout": "", "stderr": "", "success": done}
        case "mcpToolCall":
            failed = item.get("error")
            result: JsonObject = {"Ok": item.get("result")}
            if failed is not None:
                result = {"Err": failed["message"]}
            return {
                "type": "mcp_tool_call_end",
                **call,
                "invocation": _invocation(item),
                "duration": _duration(item.get("durationMs")),
                "result": result,
            }
    return None


def output_delta(item_id: str, delta: str) -> JsonObject:
    """Render more output of a command."""
    chunk = base64.b64encode(delta.encode()).decode()
    return {
        "type": "exec_command_output_delta",
        "call_id": item_id,
        "stream": "stdout",
        "chunk": chunk,
    }


def words(command: str) -> list[str]:
    """Take a command line apart."""
    try:
        return shlex.split(command)
    except ValueError:
        return [command]


def parsed(action: JsonObject) -> JsonObject:
    """Render one thing that a command does."""
    members = {
        "cmd" if name == "command" else name: value
        for name, value in action.items()
        if name != "type"
    }
    return {"type": to_snake(action["type"]), **members}


def changes(given: Sequence[Any]) -> JsonObject:
    """Render changes of files, by path."""
    return {change["path"]: _change(change["kind"], change["diff"]) for change in given}


def _change(kind: Any, diff: str) -> Json:
    if kind["type"] == "update":
        return {"update": {"unified_diff": diff, "move_path": kind.get("move_path")}}
    return {kind["type"]: {"content": diff}}


def _invocation(item: JsonObject) -> JsonObject:
    return {"server": item["server"], "tool": item["tool"], "arguments": item.get("arguments")}


def _duration(milliseconds: Any) -> JsonObject:
    total = milliseconds if isinstance(milliseconds, int) else 0
    return {"secs": total // 1000, "nanos": total % 1000 * 1_000_000}


COMMAND = "item/commandExecution/requestApproval"
PATCH = "item/fileChange/requestApproval"

DECISIONS: Mapping[str, str] = {
    "allow": "accept",
    "approved": "accept",
    "approved_for_session": "acceptForSession",
    "deny": "decline",
    "denied": "decline",
    "abort": "cancel",
}
"""Decisions by their names in the older interface; `allow` and `deny` are older still."""


def command_approval(params: Mapping[str, Any]) -> JsonObject:
    """Render the question whether a command may run, or connect to a host."""
    network = params.get("networkApprovalContext")
    command = words(params.get("command") or "")
    if network is not None:
        command = ["network-access", f"{network['protocol']}://{network['host']}"]
    return {
        "conversationId": params["threadId"],
        "callId": params["itemId"],
        "command": command,
        "cwd": params.get("cwd") or "",
        "reason": params.get("reason"),
        "parsedCmd": [parsed(action) for action in params.get("commandActions") or []],
    }


def patch_approval(params: Mapping[str, Any], given: Sequence[Any]) -> JsonObject:
    """Render the question whether files may be changed; `given` are the changes of the item."""
    return {
        "conversationId": params["threadId"],
        "callId": params["itemId"],
        "fileChanges": changes(given),
        "reason": params.get("reason"),
        "grantRoot": params.get("grantRoot"),
    }


def decision(result: Json) -> JsonObject:
    """Read a client's answer; what makes no sense declines."""
    said = result.get("decision") if isinstance(result, dict) else None
    word = said if isinstance(said, str) else ""
    return {"decision": DECISIONS.get(word, "decline")}


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
