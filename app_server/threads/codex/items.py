"""Items of Codex's rollouts as items of the wire.

Newer rollouts have items as such; older ones have events, from which the items are made.
"""

import shlex
from collections.abc import Callable, Mapping

from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from app_server.threads.codex.values import camel_keys, duration_ms, plain_path
from protocol.contract.specs import type_adapter
from protocol.model import Json, JsonObject
from protocol.turns.items import KnownThreadItem


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
