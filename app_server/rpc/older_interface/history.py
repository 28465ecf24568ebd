"""Items of turns as messages of the older interface. No I/O.

Source: docs/older_interface.md, "Events".
"""

import base64
import shlex
from collections.abc import Sequence
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
