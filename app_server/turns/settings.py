"""The settings a thread's turns run with: from the configuration, then from what clients override.

Source: docs/config.md, "Threads".
"""

from dataclasses import dataclass
from typing import Literal, cast

from app_server.config import Config, ConfigView
from app_server.turns.providers import (
    ProviderNotFound,
    default_model,
    default_provider_id,
    read_providers,
)
from protocol.policy import (
    ApprovalsReviewer,
    AskForApproval,
    DangerFullAccessSandboxPolicy,
    GranularApprovals,
    GranularAskForApproval,
    ReadOnlySandboxPolicy,
    SandboxMode,
    SandboxPolicy,
    WorkspaceWriteSandboxPolicy,
)
from protocol.rollout import Settings
from protocol.values import Personality, ReasoningSummary

SANDBOX_MODES = ("read-only", "workspace-write", "danger-full-access")
SUMMARIES = ("auto", "concise", "detailed", "none")
REVIEWERS = ("user", "auto_review", "guardian_subagent")
APPROVAL_POLICIES = ("untrusted", "on-failure", "on-request", "granular", "never")


@dataclass(frozen=True, slots=True)
class Overrides:
    """What a client chose; None leaves things as they are."""

    model: str | None = None
    model_provider: str | None = None
    cwd: str | None = None
    approval_policy: AskForApproval | None = None
    approvals_reviewer: ApprovalsReviewer | None = None
    sandbox_mode: SandboxMode | None = None
    sandbox_policy: SandboxPolicy | None = None
    effort: str | None = None
    summary: ReasoningSummary | None = None
    service_tier: str | None = None
    personality: Personality | None = None


def initial_settings(config: Config, cwd: str, overrides: Overrides) -> Settings:
    """Choose the settings of a new thread.

    Raises:
        ConfigError: a value in the configuration does not fit.
        ProviderNotFound: the chosen provider does not exist.
    """
    view = config.view()
    provider_id = overrides.model_provider or default_provider_id(config)
    if provider_id not in read_providers(config):
        raise ProviderNotFound(provider_id)
    mode = cast(SandboxMode | None, view.choice("sandbox_mode", SANDBOX_MODES)) or "read-only"
    settings = Settings(
        model=default_model(config, provider_id),
        model_provider=provider_id,
        cwd=cwd,
        approval_policy=configured_approval_policy(view),
        approvals_reviewer=configured_reviewer(view),
        sandbox_policy=sandbox_policy(mode, view),
        effort=view.string("model_reasoning_effort"),
        summary=cast(ReasoningSummary | None, view.choice("model_reasoning_summary", SUMMARIES)),
        service_tier=view.string("service_tier"),
    )
    return with_overrides(settings, overrides, view)


def with_overrides(settings: Settings, overrides: Overrides, view: ConfigView) -> Settings:
    """Put a client's choices over settings."""
    policy = overrides.sandbox_policy
    if policy is None and overrides.sandbox_mode is not None:
        policy = sandbox_policy(overrides.sandbox_mode, view)
    chosen = {
        "model": overrides.model,
        "model_provider": overrides.model_provider,
        "cwd": overrides.cwd,
        "approval_policy": overrides.approval_policy,
        "approvals_reviewer": _todays_name(overrides.approvals_reviewer),
        "sandbox_policy": policy,
        "effort": overrides.effort,
        "summary": overrides.summary,
        "service_tier": overrides.service_tier,
        "personality": overrides.personality,
    }
    return settings.model_copy(
        update={name: value for name, value in chosen.items() if value is not None}
    )


def sandbox_policy(mode: SandboxMode, view: ConfigView) -> SandboxPolicy:
    """Spell a sandbox mode out, with `[sandbox_workspace_write]` of the configuration."""
    if mode == "danger-full-access":
        return DangerFullAccessSandboxPolicy()
    if mode == "read-only":
        return ReadOnlySandboxPolicy()
    table = view.at("sandbox_workspace_write")
    return WorkspaceWriteSandboxPolicy(
        writable_roots=table.strings("writable_roots") or [],
        network_access=table.boolean("network_access", default=False),
        exclude_tmpdir_env_var=table.boolean("exclude_tmpdir_env_var", default=False),
        exclude_slash_tmp=table.boolean("exclude_slash_tmp", default=False),
    )


def configured_reviewer(view: ConfigView) -> ApprovalsReviewer:
    """Read `approvals_reviewer`: who decides on approvals.

    Raises:
        ConfigError: it is none of the reviewers.
    """
    chosen = cast(ApprovalsReviewer | None, view.choice("approvals_reviewer", REVIEWERS))
    return _todays_name(chosen) or "user"


def _todays_name(reviewer: ApprovalsReviewer | None) -> ApprovalsReviewer | None:
    return "auto_review" if reviewer == "guardian_subagent" else reviewer


def configured_approval_policy(view: ConfigView) -> AskForApproval:
    """Read `approval_policy`; what older versions knew is read as the nearest of today.

    Raises:
        ConfigError: it is none of the policies.
    """
    if isinstance(view.table.get("approval_policy"), dict):
        granular = view.at("approval_policy").at("granular")
        return GranularAskForApproval(
            granular=GranularApprovals(
                mcp_elicitations=granular.boolean("mcp_elicitations", default=True),
                rules=granular.boolean("rules", default=True),
                sandbox_approval=granular.boolean("sandbox_approval", default=True),
            )
        )
    chosen = view.choice("approval_policy", APPROVAL_POLICIES) or "on-request"
    if chosen in ("on-failure", "granular"):
        # An older policy, and one that needs a table: both ask before anything risky.
        chosen = "on-request"
    return cast(Literal["untrusted", "on-request", "never"], chosen)
