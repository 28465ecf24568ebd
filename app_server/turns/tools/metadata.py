"""What MCP servers are sent of the turn that calls them.

Source: docs/mcp.md, "Calls".
"""

from app_server.threads.log.state.thread import ThreadState
from protocol.lifecycle import PROTOCOL_VERSION
from protocol.model import JsonObject
from protocol.policy import (
    DangerFullAccessSandboxPolicy,
    ExternalSandboxPolicy,
    WorkspaceWriteSandboxPolicy,
)


def turn_metadata(
    state: ThreadState,
    *,
    user_was_asked: bool,
    trigger: str | None = None,
    parent_turn_id: str | None = None,
) -> JsonObject:
    """Describe the running turn: ids, model, how far its tools may go, and who lets them."""
    turn = state.turns[-1]
    metadata: JsonObject = {
        "session_id": state.id,
        "thread_id": state.id,
        "model": state.in_force.model,
    }
    if state.in_force.effort is not None:
        metadata["reasoning_effort"] = state.in_force.effort
    if trigger is not None:
        metadata["turn_trigger"] = trigger
    if parent_turn_id is not None:
        metadata["parent_turn_id"] = parent_turn_id
    if user_was_asked:
        metadata["user_input_requested_during_turn"] = True
    return metadata | {
        "turn_id": turn.id,
        "turn_started_at_unix_ms": turn.started_at_ms,
        "sandbox_mode": _sandbox_mode(state),
        "auto_review_enabled": _auto_review_enabled(state),
        "codex_version": PROTOCOL_VERSION,
    }


def _auto_review_enabled(state: ThreadState) -> bool:
    settings = state.in_force
    return settings.approvals_reviewer != "user" and settings.approval_policy != "never"


def _sandbox_mode(state: ThreadState) -> str:
    match state.in_force.sandbox_policy:
        case DangerFullAccessSandboxPolicy() | ExternalSandboxPolicy():
            return "danger-full-access"
        case WorkspaceWriteSandboxPolicy():
            return "workspace-write"
    return "read-only"
