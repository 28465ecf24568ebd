"""What MCP servers are sent of the turn that calls them.

Source: docs/mcp.md, "Calls".
"""

from app_server.turns.slot import RunningTurn
from protocol.model import JsonObject
from protocol.server.lifecycle import PROTOCOL_VERSION
from protocol.turns.policy import (
    DangerFullAccessSandboxPolicy,
    ExternalSandboxPolicy,
    SandboxPolicy,
    WorkspaceWriteSandboxPolicy,
)


def turn_metadata(running: RunningTurn) -> JsonObject:
    """Describe the running turn: ids, model, how far its tools may go, and who lets them."""
    state, options = running.recorder.log.state, running.options
    turn, settings = state.turns[-1], state.in_force
    metadata: JsonObject = {
        "session_id": state.id,
        "thread_id": state.id,
        "model": settings.model,
    }
    if settings.effort is not None:
        metadata["reasoning_effort"] = settings.effort
    if options.trigger is not None:
        metadata["turn_trigger"] = options.trigger
    if options.parent_turn_id is not None:
        metadata["parent_turn_id"] = options.parent_turn_id
    if running.user_was_asked:
        metadata["user_input_requested_during_turn"] = True
    return metadata | {
        "turn_id": turn.id,
        "turn_started_at_unix_ms": turn.started_at_ms,
        "sandbox_mode": _sandbox_mode(settings.sandbox_policy),
        "auto_review_enabled": settings.approvals_reviewer != "user"
        and settings.approval_policy != "never",
        "codex_version": PROTOCOL_VERSION,
    }


def _sandbox_mode(policy: SandboxPolicy) -> str:
    match policy:
        case DangerFullAccessSandboxPolicy() | ExternalSandboxPolicy():
            return "danger-full-access"
        case WorkspaceWriteSandboxPolicy():
            return "workspace-write"
    return "read-only"
