"""Approvals as `execCommandApproval` and `applyPatchApproval`, and the decisions back. No I/O.

Source: docs/older_interface.md, "Approvals".
"""

from collections.abc import Mapping, Sequence
from typing import Any

from app_server.rpc.older_interface.history import changes, parsed, words
from protocol.model import Json, JsonObject

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
