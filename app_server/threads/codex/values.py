"""Values of Codex's rollouts in the form that the wire and our own logs have."""

from datetime import datetime
from typing import Any
from urllib.parse import unquote, urlsplit

from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from protocol.contract.specs import type_adapter
from protocol.log.rollout import Settings
from protocol.model import Json, JsonObject
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
