"""Values and items of Codex's rollouts in the form that the wire and our own logs have.

Newer rollouts have items as such; older ones have events, from which the items are made.
"""

import shlex
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import unquote, urlsplit

from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from protocol.contract.specs import type_adapter
from protocol.log.rollout import Settings
from protocol.model import Json, JsonObject
from protocol.turns.items import KnownThreadItem
from protocol.turns.policy import (
    ApprovalsReviewer,
    AskForApproval,
    ReadOnlySandboxPolicy,
    SandboxPolicy,
)
from protocol.turns.turn import ThreadTokenUsage, TokenUsageBreakdown, TurnError

_SANDBOXES = {
    "read-only": "readOnly",
    "workspace-write": "workspaceWrite",
    "danger-full-access": "dangerFullAccess",
    "external-sandbox": "externalSandbox",
}


def parse_time_ms(text: Json) -> int:
    """Read an RFC 3339 time as Unix milliseconds; 0 when it is none."""
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (OverflowError, TypeError, ValueError):
        return 0


def camel_keys(value: Json) -> Json:
    """Rename the members of an object, and of the objects in it, to camelCase."""
    if isinstance(value, dict):
        return {to_camel(key): camel_keys(member) for key, member in value.items()}
    if isinstance(value, list):
        return [camel_keys(member) for member in value]
    return value


def plain_path(text: Json) -> str:
    """Return a path that may be given as a `file:` URL."""
    if not isinstance(text, str):
        return "/"
    if not text.startswith("file://"):
        return text
    try:
        return unquote(urlsplit(text).path)
    except ValueError:
        return "/"


def duration_ms(value: Json) -> int | None:
    """Read a duration of seconds and nanoseconds."""
    match value:
        case {"secs": int(seconds), "nanos": int(nanos)}:
            return seconds * 1000 + nanos // 1_000_000
    return None


def settings_of(context: JsonObject, provider: str) -> Settings:
    """Read the settings of a `turn_context`; what makes no sense here becomes the safest value."""
    policy = context.get("approval_policy")
    policy = "on-request" if policy == "on-failure" else policy
    return Settings(
        model=_text(context.get("model")) or "unknown",
        model_provider=_text(context.get("model_provider_id")) or provider,
        cwd=plain_path(context.get("cwd")),
        approval_policy=_valid(AskForApproval, policy, "on-request"),
        approvals_reviewer=_valid(ApprovalsReviewer, context.get("approvals_reviewer"), "user"),
        sandbox_policy=_valid(
            SandboxPolicy, _sandbox(context.get("sandbox_policy")), ReadOnlySandboxPolicy()
        ),
        effort=_text(context.get("effort")) or None,
    )


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def _sandbox(value: Json) -> Json:
    match value:
        case {"type": str(kind)}:
            return {**camel_keys(value), "type": _SANDBOXES.get(kind, kind)}
    return value


def _valid(kind: Any, value: Json, otherwise: Any) -> Any:
    try:
        return type_adapter(kind).validate_python(value)
    except ValidationError:
        return otherwise


def usage_of(info: Json) -> ThreadTokenUsage | None:
    """Read the `info` of a `token_count`; None when there is none."""
    match info:
        case {"total_token_usage": dict(total), "last_token_usage": dict(last)}:
            window = info.get("model_context_window")
            try:
                return ThreadTokenUsage(
                    total=TokenUsageBreakdown.model_validate(total),
                    last=TokenUsageBreakdown.model_validate(last),
                    model_context_window=window if isinstance(window, int) else None,
                )
            except ValidationError:
                return None
    return None


def error_of(value: Json) -> TurnError | None:
    """Read why a turn failed; None when it did not."""
    match value:
        case {"message": str(message)}:
            info = value.get("codex_error_info")
            word = to_camel(info) if isinstance(info, str) else camel_keys(info)
            try:
                return TurnError.model_validate({"message": message, "codexErrorInfo": word})
            except ValidationError:
                return TurnError(message=message)
    return None


def source_of(value: Json) -> Json:
    """Read what created a thread, as the wire says it."""
    match value:
        case "mcp":
            return "appServer"
        case str():
            return value
        case {"subagent": kind}:
            return {"subAgent": kind}
        case {"custom": str()}:
            return value
    return "unknown"


class NoItem(Exception):
    """An item of a kind or form that is not known here; the text names it."""


def item_of_event(event: JsonObject, item_id: str, at_ms: int) -> KnownThreadItem | None:
    """Read the item of an event; None if it has none.

    Events of newer rollouts hold items as such. Those of older ones stand for items, whose id is
    `item_id` if the event has none.

    Raises:
        NoItem
    """
    kind = str(event.get("type"))
    if kind == "item_completed":
        times = _times(event.get("started_at_ms"), event.get("completed_at_ms"))
        return _checked({**_item(event.get("item")), **times})
    if kind not in _EVENTS:
        return None
    wire_type, shape = _EVENTS[kind]
    named = event.get("call_id")
    wire = {"type": wire_type, "id": named if isinstance(named, str) else item_id}
    return _checked({**wire, **_times(at_ms, at_ms), **_shaped(shape, event)})


def _item(raw: Json) -> JsonObject:
    match raw:
        case {"type": str(kind)}:
            wire = {to_camel(key): value for key, value in raw.items()}
            wire["type"] = kind[:1].lower() + kind[1:]
            return {**wire, **_shaped(_SHAPES.get(kind), raw)}
    raise NoItem("nameless")


_Shape = Callable[[JsonObject], JsonObject]


def _times(started_at_ms: Json, completed_at_ms: Json) -> JsonObject:
    return {"startedAtMs": started_at_ms, "completedAtMs": completed_at_ms}


def _shaped(shape: _Shape | None, raw: JsonObject) -> JsonObject:
    try:
        return {} if shape is None else shape(raw)
    except (AttributeError, KeyError, TypeError) as exc:
        raise NoItem(str(raw.get("type"))) from exc


def _checked(wire: JsonObject) -> KnownThreadItem:
    try:
        item: KnownThreadItem = type_adapter(KnownThreadItem).validate_python(wire)
    except ValidationError as exc:
        raise NoItem(str(wire.get("type"))) from exc
    return item


# Items of newer rollouts: what differs from the wire beyond the case of letters.


def _user_message(raw: JsonObject) -> JsonObject:
    return {"content": [_user_input(part) for part in raw["content"]]}


def _user_input(part: JsonObject) -> JsonObject:
    match part:
        case {"type": "image", "image_url": str(url)}:
            return {"type": "image", "url": url}
        case {"type": "local_image"}:
            return {**part, "type": "localImage"}
        case {"type": "text"}:
            elements = camel_keys(part.get("text_elements", []))
            return {"type": "text", "text": part["text"], "text_elements": elements}
    return part


def _agent_message(raw: JsonObject) -> JsonObject:
    return {"text": "".join(part["text"] for part in raw["content"])}


def _reasoning(raw: JsonObject) -> JsonObject:
    return {"summary": raw.get("summary_text", []), "content": raw.get("raw_content", [])}


def _mcp_call(raw: JsonObject) -> JsonObject:
    return {
        "status": to_camel(raw["status"]),
        "result": _tool_result(raw.get("result")),
        "error": raw.get("error"),
        "durationMs": duration_ms(raw.get("duration")),
        "appContext": None,
        "mcpAppUi": None,
    }


def _tool_result(result: Json) -> Json:
    if result is None:
        return None
    structured = result.get("structured_content", result.get("structuredContent"))
    return {
        "content": result["content"],
        "structuredContent": structured,
        "_meta": result.get("_meta", result.get("meta")),
    }


def _command(raw: JsonObject) -> JsonObject:
    command = raw["command"]
    status = raw.get("status") or ("completed" if raw.get("exit_code") == 0 else "failed")
    return {
        "command": command if isinstance(command, str) else shlex.join(command),
        "cwd": plain_path(raw["cwd"]),
        "source": to_camel(raw.get("source", "agent")),
        "status": to_camel(status),
        "commandActions": [_command_action(action) for action in raw.get("parsed_cmd", [])],
        "aggregatedOutput": raw.get("aggregated_output"),
        "exitCode": raw.get("exit_code"),
        "durationMs": duration_ms(raw.get("duration")),
    }


def _command_action(action: JsonObject) -> JsonObject:
    members = {key: value for key, value in action.items() if key not in ("cmd", "type")}
    return {**members, "type": to_camel(action["type"]), "command": action["cmd"]}


def _file_change(raw: JsonObject) -> JsonObject:
    changes = raw["changes"]
    status = raw.get("status") or ("completed" if raw.get("success", True) else "failed")
    return {
        "changes": [_change(path, change) for path, change in changes.items()],
        "status": to_camel(status),
    }


def _change(path: str, change: JsonObject) -> JsonObject:
    kind: JsonObject = {"type": change["type"]}
    if change["type"] == "update":
        kind["move_path"] = change.get("move_path")
    diff = change.get("unified_diff", change.get("content", ""))
    return {"path": path, "kind": kind, "diff": diff}


def _web_search(raw: JsonObject) -> JsonObject:
    action = raw.get("action")
    if isinstance(action, dict):
        action = {**action, "type": to_camel(str(action.get("type")))}
    return {"query": raw.get("query", ""), "action": action}


_SHAPES: Mapping[str, _Shape] = {
    "UserMessage": _user_message,
    "AgentMessage": _agent_message,
    "Reasoning": _reasoning,
    "McpToolCall": _mcp_call,
    "CommandExecution": _command,
    "FileChange": _file_change,
    "WebSearch": _web_search,
}


# Events of older rollouts.


def _event_user(event: JsonObject) -> JsonObject:
    content: list[JsonObject] = []
    if event["message"]:
        content.append({"type": "text", "text": event["message"], "text_elements": []})
    content += [{"type": "image", "url": url} for url in event.get("images") or []]
    content += [{"type": "localImage", "path": path} for path in event.get("local_images") or []]
    return {"content": content}


def _event_mcp(event: JsonObject) -> JsonObject:
    invocation, result = event["invocation"], event["result"]
    failed = "Ok" not in result or bool((result["Ok"] or {}).get("is_error"))
    return {
        "server": invocation["server"],
        "tool": invocation["tool"],
        "arguments": invocation.get("arguments"),
        "status": "failed" if failed else "completed",
        "result": _tool_result(result.get("Ok")),
        "error": {"message": result["Err"]} if "Err" in result else None,
        "durationMs": duration_ms(event.get("duration")),
    }


_EVENTS: Mapping[str, tuple[str, _Shape | None]] = {
    "user_message": ("userMessage", _event_user),
    "agent_message": ("agentMessage", lambda event: {"text": event["message"]}),
    "agent_reasoning": ("reasoning", lambda event: {"summary": [event["text"]], "content": []}),
    "mcp_tool_call_end": ("mcpToolCall", _event_mcp),
    "exec_command_end": ("commandExecution", _command),
    "patch_apply_end": ("fileChange", _file_change),
    "web_search_end": ("webSearch", _web_search),
    "context_compacted": ("contextCompaction", None),
}
