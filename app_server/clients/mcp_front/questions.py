"""From questions of the app-server to `elicitation/create`, and back. No I/O.

Source: docs/mcp_server.md, "Questions".
"""

from dataclasses import dataclass

from protocol.envelope import RequestId
from protocol.model import Json, JsonObject

ELICITATION = "mcpServer/elicitation/request"

ACTIONS = ("accept", "decline", "cancel")

_DECISIONS: dict[str, JsonObject] = {
    "allow": {"action": "accept", "content": {}},
    "approved": {"action": "accept", "content": {}},
    "approved_for_session": {
        "action": "accept",
        "content": {},
        "_meta": {"persist": "session"},
    },
    "deny": {"action": "decline"},
    "denied": {"action": "decline"},
    "abort": {"action": "cancel"},
}
"""`allow` and `deny` are what the description of this interface promises to clients; the other four
are what its schema has, and what its implementation reads.
Source: openai/codex, codex-rs/docs/codex_mcp_interface.md and protocol.rs (`ReviewDecision`)."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the user said."""

    result: JsonObject
    """For the app-server: `action`, perhaps `content` and `_meta`."""
    ends_turn: bool = False


DECLINED = Verdict({"action": "decline"})


def elicitation_params(asked: JsonObject, call_id: RequestId) -> JsonObject:
    """Render a question; `call_id` is the tool call of ours that it is asked in."""
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
        "threadId": asked["threadId"],
        "codex_elicitation": "mcp-tool-approval" if approval else "mcp-elicitation",
        "codex_mcp_tool_call_id": call_id,
        "codex_event_id": asked["turnId"],
        "codex_mcp_server": asked["serverName"],
    }


def parse_verdict(result: Json) -> Verdict:
    """Read an answer in either form; what is neither declines."""
    if not isinstance(result, dict):
        return DECLINED
    decision, action = result.get("decision"), result.get("action")
    if isinstance(decision, str):
        known = _DECISIONS.get(decision)
        return DECLINED if known is None else Verdict(known, ends_turn=decision == "abort")
    if action not in ACTIONS:
        return DECLINED
    kept = {name: result[name] for name in ("content", "_meta") if name in result}
    return Verdict({"action": action, **kept})
