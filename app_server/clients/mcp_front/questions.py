"""From questions of the app-server to `elicitation/create`, and back. No I/O.

Source: openai/codex, codex-rs/mcp-server (`exec-approval`, `patch-approval`) and
codex-rs/docs/codex_mcp_interface.md (`allow`, `deny`); docs/mcp_server.md, "Questions".
"""

from collections.abc import Sequence
from dataclasses import dataclass

from app_server.rpc.older_interface.events import COMMAND, DECISIONS, PATCH, parsed, words
from protocol.jsonrpc.envelope import Request, RequestId
from protocol.model import Json, JsonObject

ELICITATION = "mcpServer/elicitation/request"
METHODS = (ELICITATION, COMMAND, PATCH)
"""Of the app-server, which are put to the client."""

NO_FORM: JsonObject = {"type": "object", "properties": {}}

ACTIONS = ("accept", "decline", "cancel")


def question_params(question: Request, call_id: RequestId, changes: Sequence[Json]) -> JsonObject:
    """Render a question of METHODS; `call_id` is the tool call of ours that it is asked in.

    `changes` are those of the item that it is about, for a patch.
    """
    asked: JsonObject = question.params
    if question.method == COMMAND:
        return command_params(asked, call_id)
    if question.method == PATCH:
        return patch_params(asked, call_id, changes)
    return elicitation_params(asked, call_id)


def elicitation_params(asked: JsonObject, call_id: RequestId) -> JsonObject:
    """Render a question of an MCP server."""
    meta = asked.get("_meta")
    params: JsonObject = {"message": asked["message"]}
    if asked["mode"] == "url":
        params |= {"mode": "url", "url": asked["url"], "elicitationId": asked["elicitationId"]}
    else:
        params["requestedSchema"] = asked["requestedSchema"]
    if meta is not None:
        params["_meta"] = meta
    approval = isinstance(meta, dict) and meta.get("codex_approval_kind") == "mcp_tool_call"
    return {
        **params,
        **_common(asked, call_id, "mcp-tool-approval" if approval else "mcp-elicitation"),
        "codex_mcp_server": asked["serverName"],
    }


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
        "requestedSchema": NO_FORM,
        **_common(asked, call_id, "exec-approval"),
        "codex_call_id": asked["itemId"],
        "message": message,
        "codex_command": words(command),
        "codex_cwd": cwd,
        "codex_parsed_cmd": [parsed(action) for action in asked.get("commandActions") or []],
    }


def patch_params(asked: JsonObject, call_id: RequestId, changes: Sequence[Json]) -> JsonObject:
    """Render the approval of a patch; `changes` are those of the item."""
    reason = asked.get("reason")
    files = ", ".join(change["path"] for change in changes)
    why = f" {reason}" if reason else ""
    return {
        "requestedSchema": NO_FORM,
        **_common(asked, call_id, "patch-approval"),
        "codex_call_id": asked["itemId"],
        "message": f"Allow changes of files: {files}?{why}",
        "codex_reason": reason,
        "codex_grant_root": asked.get("grantRoot"),
        "codex_changes": {change["path"]: _change(change) for change in changes},
    }


def _common(asked: JsonObject, call_id: RequestId, kind: str) -> JsonObject:
    return {
        "threadId": asked["threadId"],
        "codex_elicitation": kind,
        "codex_mcp_tool_call_id": call_id,
        "codex_event_id": asked["turnId"],
    }


def _change(change: JsonObject) -> JsonObject:
    kind, diff = change["kind"], change["diff"]
    if kind["type"] == "update":
        return {"type": "update", "unified_diff": diff, "move_path": kind.get("move_path")}
    return {"type": kind["type"], "content": diff}


@dataclass(frozen=True, slots=True)
class Verdict:
    """Decision of the user."""

    result: JsonObject
    """For a question of an MCP server: `action`, perhaps `content` and `_meta`."""
    ends_turn: bool = False

    def answer_to(self, method: str) -> JsonObject:
        """Return the result for the app-server, which asked by a method."""
        if method == ELICITATION:
            return self.result
        action, meta = self.result["action"], self.result.get("_meta")
        is_lasting = isinstance(meta, dict) and meta.get("persist") == "session"
        return {"decision": "acceptForSession" if action == "accept" and is_lasting else action}


DECLINED = Verdict({"action": "decline"})

_VERDICTS = {
    "accept": Verdict({"action": "accept", "content": {}}),
    "acceptForSession": Verdict(
        {"action": "accept", "content": {}, "_meta": {"persist": "session"}}
    ),
    "cancel": Verdict({"action": "cancel"}, ends_turn=True),
}


def parse_verdict(result: Json) -> Verdict:
    """Parse an answer in either form; any other value declines."""
    if not isinstance(result, dict):
        return DECLINED
    decision, action = result.get("decision"), result.get("action")
    if isinstance(decision, str):
        return _VERDICTS.get(DECISIONS.get(decision, "decline"), DECLINED)
    if action not in ACTIONS:
        return DECLINED
    kept = {name: result[name] for name in ("content", "_meta") if name in result}
    return Verdict({"action": action, **kept})
