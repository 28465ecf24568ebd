"""Administrator's requirements applied to a thread's settings. No I/O.

Source: docs/config.md, "Requirements".
"""

from collections.abc import Sequence

from app_server.config.requirements import Requirements
from app_server.sessions.settings import Overrides, read_only
from protocol.log.rollout import Settings
from protocol.turns.policy import AskForApproval, GranularAskForApproval, SandboxPolicy

_NAMES = {
    "untrusted": "UnlessTrusted",
    "on-request": "OnRequest",
    "never": "Never",
    "read-only": "ReadOnly",
    "workspace-write": "WorkspaceWrite",
    "danger-full-access": "DangerFullAccess",
    "external-sandbox": "ExternalSandbox",
}
"""As clients know the words from texts of this kind."""

_MODES = {
    "readOnly": "read-only",
    "workspaceWrite": "workspace-write",
    "dangerFullAccess": "danger-full-access",
    "externalSandbox": "external-sandbox",
}
"""The modes that sandbox policies have, by their type."""


class SettingNotAllowed(Exception):
    """A client chose what an administrator does not allow; the text says what is allowed."""


def refuse_overrides(overrides: Overrides, chosen: Settings, requirements: Requirements) -> None:
    """Check what a client chose for a thread that has its settings already.

    Raises:
        SettingNotAllowed
    """
    if overrides.approval_policy is not None:
        problem = _approval_problem(chosen.approval_policy, requirements)
        if problem is not None:
            raise SettingNotAllowed(problem)
    if overrides.sandbox_policy is not None or overrides.sandbox_mode is not None:
        problem = _sandbox_problem(chosen.sandbox_policy, requirements)
        if problem is not None:
            raise SettingNotAllowed(problem)


def with_required(settings: Settings, requirements: Requirements) -> tuple[Settings, Sequence[str]]:
    """Put what is demanded in the place of what is not allowed; also says what was replaced."""
    changed: dict[str, object] = {}
    replaced: list[str] = []
    problem = _approval_problem(settings.approval_policy, requirements)
    if problem is not None and requirements.approval_policies:
        first = changed["approval_policy"] = requirements.approval_policies[0]
        replaced.append(_replaced("approval_policy", _policy_name(first), problem))
    problem = _sandbox_problem(settings.sandbox_policy, requirements)
    if problem is not None:
        settings = read_only(settings, network=False)
        replaced.append(_replaced("sandbox_mode", _NAMES["read-only"], problem))
    return (settings.model_copy(update=changed) if changed else settings), replaced


def _approval_problem(policy: AskForApproval, requirements: Requirements) -> str | None:
    allowed = requirements.approval_policies
    if allowed is None or policy in allowed:
        return None
    names = [_policy_name(each) for each in allowed]
    return _problem("approval_policy", _policy_name(policy), names, requirements)


def _sandbox_problem(policy: SandboxPolicy, requirements: Requirements) -> str | None:
    allowed, mode = requirements.sandbox_modes, _MODES[policy.type]
    if allowed is None or mode in allowed:
        return None
    names = [_NAMES[each] for each in allowed]
    return _problem("sandbox_mode", _NAMES[mode], names, requirements)


def _problem(key: str, value: str, allowed: Sequence[str], requirements: Requirements) -> str:
    return (
        f"invalid value for `{key}`: `{value}` is not in the allowed set "
        f"[{', '.join(allowed)}] (set by {requirements.source})"
    )


def _replaced(key: str, required: str, problem: str) -> str:
    return (
        f"Configured value for `{key}` is disallowed by requirements; falling back to required "
        f"value {required}. Details: {problem}"
    )


def _policy_name(policy: AskForApproval) -> str:
    return "Granular" if isinstance(policy, GranularAskForApproval) else _NAMES[policy]
