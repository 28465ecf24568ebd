"""Approvals that an MCP server asks for by itself, marked so that a reviewer may answer. No I/O.

A form without fields whose `_meta` says `codex_request_type: approval_request` names a tool call
that the server holds back. Other questions are the user's alone.
Source: docs/mcp.md, "Questions of servers".
"""

from app_server.extension.metadata import ApprovalSource, RuntimeMetadata
from app_server.mcp.tools.calls import cut_middle
from app_server.turns.review.evidence import (
    MAX_ARGUMENTS_BYTES,
    MAX_DESCRIPTION_BYTES,
    MAX_DETAIL_BYTES,
    bounded,
)
from app_server.turns.review.reviewer import PlannedAction
from protocol.model import Json, JsonObject
from protocol.turns.auto_review import reviewed_call
from protocol.turns.elicitation import SOURCE_DESCRIPTION, SOURCE_ID, SOURCE_NAME, FormElicitation

_LIMITS = {
    "tool_title": MAX_DETAIL_BYTES,
    "tool_description": MAX_DESCRIPTION_BYTES,
    SOURCE_ID: MAX_DETAIL_BYTES,
    SOURCE_NAME: MAX_DETAIL_BYTES,
    SOURCE_DESCRIPTION: MAX_DESCRIPTION_BYTES,
}

_SOURCE = (SOURCE_ID, SOURCE_NAME, SOURCE_DESCRIPTION)


def asks_for_approval(meta: Json) -> bool:
    """Whether a question, by its `_meta`, wants somebody's approval."""
    return isinstance(meta, dict) and meta.get("codex_request_type") == "approval_request"


def planned_by_server(
    turn_id: str, form: FormElicitation, metadata: RuntimeMetadata
) -> PlannedAction | None:
    """Put the form to the reviewer; None if it does not name a call, or wants more than a word.

    Whom the call belongs to is what a registration says of the tool, else what the server says.
    """
    meta = form.meta
    if not isinstance(meta, dict) or form.requested_schema.properties:
        return None
    name, arguments = meta.get("tool_name"), meta.get("tool_params", {})
    if meta.get("codex_approval_kind") != "mcp_tool_call" or not isinstance(arguments, dict):
        return None
    if not isinstance(name, str) or not name.strip():
        return None
    registered = metadata.of_named_tool(name).approval_source
    if registered is not None:
        meta = {**meta, **dict.fromkeys(_SOURCE), **_members_of(registered)}
    name = cut_middle(name, MAX_DETAIL_BYTES)
    facts = {
        key: cut_middle(text, limit_bytes)
        for key, limit_bytes in _LIMITS.items()
        if isinstance(text := meta.get(key), str)
    }
    evidence: JsonObject = {
        "kind": "request_of_mcp_server",
        "server": form.server_name,
        "tool": name,
        **facts,
        "message": bounded(form.message, MAX_DESCRIPTION_BYTES),
        "arguments": bounded(arguments, MAX_ARGUMENTS_BYTES),
    }
    source = facts.get(SOURCE_ID), facts.get(SOURCE_NAME)
    action = reviewed_call(form.server_name, name, facts.get("tool_title"), source)
    return PlannedAction(turn_id, None, action, evidence)


def _members_of(source: ApprovalSource) -> JsonObject:
    return dict(zip(_SOURCE, (source.id, source.name, source.description), strict=True))


def accepted() -> JsonObject:
    """Answer a server whose call was approved."""
    return {"action": "accept", "content": {}, "_meta": {"approvals_reviewer": "auto_review"}}


def declined(reason: str | None = None) -> JsonObject:
    """Answer a server whose call was not."""
    why = {} if reason is None else {"message": reason}
    return {"action": "decline", "_meta": {**why, "approvals_reviewer": "auto_review"}}
