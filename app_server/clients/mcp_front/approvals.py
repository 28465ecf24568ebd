"""From approvals of commands and patches to `elicitation/create`, and back. No I/O.

Source: openai/codex, codex-rs/mcp-server (`exec-approval`, `patch-approval`, `ReviewDecision`);
docs/mcp_server.md, "Questions".
"""

from collections.abc import Sequence

from app_server.older_interface.approvals import DECISIONS
from app_server.older_interface.history import parsed, words
from protocol.envelope import RequestId
from protocol.model import Json, JsonObject

NO_FORM: JsonObject = {"type": "object", "properties": {}}

_ACTIONS = ("accept", "decline", "cancel")


def command_params(asked: JsonObject, call_id: RequestId) -> JsonObject:
    """Render the question whether a command may run, or connect to a host."""
    command, cwd = asked.get("command") or "", asked.get("cwd") or ""
    network = asked.get("networkApprovalContext")
    why = f" {asked['reason']}" if asked.get("reason") else ""
    message = f"Allow `{command}` to run in `{cwd}`?{why}"
    if network is not None:
        command = f"network-access {network['protocol']}://{network['host']}"
        message = f"Allow network access to `{network['host']}` ({network['protocol']})?"
    return {
        **_common(asked, call_id, "exec-approval"),
        "message": message,
        "codex_command": words(command),
        "codex_cwd": cwd,
        "codex_parsed_cmd": [parsed(action) for action in asked.get("commandActions") or []],
    }


def patch_params(asked: JsonObject, call_id: RequestId, changes: Sequence[Json]) -> JsonObject:
    """Render the question whether files may be changed; `changes` are those of the item."""
    reason = asked.get("reason")
    files = ", ".join(change["path"] for change in changes)
    why = f" {reason}" if reason else ""
    return {
        **_common(asked, call_id, "patch-approval"),
        "message": f"Allow changes of files: {files}?{why}",
        "codex_reason": reason,
        "codex_grant_root": asked.get("grantRoot"),
        "codex_changes": {change["path"]: _change(change) for change in changes},
    }


def parse_decision(result: Json) -> str:
    """Read an answer of either form as a decision of the app-server; what is neither declines."""
    if not isinstance(result, dict):
        return "decline"
    decision, action, meta = result.get("decision"), result.get("action"), result.get("_meta")
    if isinstance(decision, str):
        return DECISIONS.get(decision, "decline")
    if action == "accept" and isinstance(meta, dict) and meta.get("persist") == "session":
        return "acceptForSession"
    return action if action in _ACTIONS else "decline"


def _common(asked: JsonObject, call_id: RequestId, kind: str) -> JsonObject:
    return {
        "requestedSchema": NO_FORM,
        "threadId": asked["threadId"],
        "codex_elicitation": kind,
        "codex_mcp_tool_call_id": call_id,
        "codex_event_id": asked["turnId"],
        "codex_call_id": asked["itemId"],
    }


def _change(change: JsonObject) -> JsonObject:
    kind, diff = change["kind"], change["diff"]
    if kind["type"] == "update":
        return {"type": "update", "unified_diff": diff, "move_path": kind.get("move_path")}
    return {"type": kind["type"], "content": diff}
