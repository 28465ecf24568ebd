"""The settings a thread's turns run with: from the configuration, over it what clients choose.

Over both stands what an administrator demands, at the end of this module. No I/O.
Source: docs/config.md, "Threads", "Requirements".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Literal, cast

from app_server.config.effective import default_provider_id
from app_server.config.requirements import Requirements
from app_server.config.values import Config, ConfigError, ConfigView
from app_server.models.catalogue.providers import (
    ProviderNotFound,
    default_model,
    read_providers,
)
from app_server.permissions.profiles import read_profile
from app_server.permissions.sandbox.policy import has_network
from app_server.permissions.sandbox.policy import read_only as without_writing
from app_server.runtime.user_paths import expand_user
from app_server.sessions.code_review import INSTRUCTIONS as REVIEW_INSTRUCTIONS
from protocol.log.rollout import LOCAL, Settings, StoredEnvironment, StoredProfile
from protocol.turns.policy import (
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
from protocol.values import CollaborationMode, Personality, ReasoningSummary

SANDBOX_MODES = ("read-only", "workspace-write", "danger-full-access")
PERMISSION_PROFILES: Mapping[str, SandboxMode] = {
    ":read-only": "read-only",
    ":workspace": "workspace-write",
    ":danger-full-access": "danger-full-access",
}
"""The built-in profiles, and the sandbox that each stands for."""
SUMMARIES = ("auto", "concise", "detailed", "none")
REVIEWERS = ("user", "auto_review", "guardian_subagent")
APPROVAL_POLICIES = ("untrusted", "on-failure", "on-request", "granular", "never")


@dataclass(frozen=True, slots=True)
class Overrides:
    """Settings that a client chose; None leaves a setting as it is."""

    model: str | None = None
    model_provider: str | None = None
    cwd: str | None = None
    approval_policy: AskForApproval | None = None
    approvals_reviewer: ApprovalsReviewer | None = None
    sandbox_mode: SandboxMode | None = None
    sandbox_policy: SandboxPolicy | None = None
    profile: StoredProfile | None = None
    """Wins over both."""
    effort: str | None = None
    summary: ReasoningSummary | None = None
    service_tier: str | None = None
    personality: Personality | None = None
    mode: CollaborationMode | None = None
    """Wins over `model` and `effort`; its nulls count too."""
    workspace_roots: Sequence[str] | None = None
    without_environment: bool | None = None
    environments: Sequence[StoredEnvironment] | None = None
    """Empty: this machine alone, or none."""
    disabled_plugin_ids: Sequence[str] | None = None
    base_instructions: str | None = None
    developer_instructions: str | None = None

    @property
    def names_places(self) -> bool:
        """Whether it says anything of where work is done, or within what."""
        said = (self.cwd, self.workspace_roots, self.environments)
        limits = (self.sandbox_mode, self.sandbox_policy, self.profile)
        return any(one is not None for one in (*said, *limits))


_NOT_COPIED = frozenset(
    {"approvals_reviewer", "sandbox_mode", "sandbox_policy", "profile", "mode", "environments"}
)
"""Choices that become settings in another way than as they are."""

_COPIED = [field.name for field in fields(Overrides) if field.name not in _NOT_COPIED]


def initial_settings(
    config: Config, cwd: str, overrides: Overrides, trust: str | None = None
) -> Settings:
    """Choose the settings of a new thread.

    `trust` is what the user has said of the project: `trusted`, `untrusted`, or None for nothing.

    Raises:
        ConfigError: a value in the configuration does not fit.
        ProviderNotFound: the chosen provider does not exist.
    """
    view = config.view()
    provider_id = overrides.model_provider or default_provider_id(config)
    if provider_id not in read_providers(config):
        raise ProviderNotFound(provider_id)
    mode = cast(SandboxMode | None, view.choice("sandbox_mode", SANDBOX_MODES))
    if mode is None:
        # Nobody is asked about a project until its user has been: it is looked at alone.
        mode = "read-only" if trust is None else "workspace-write"
    name = view.string("default_permissions")
    own = None if name is None else profile_of(config, name)
    if name is not None and own is None:
        mode = sandbox_mode_of(name)
    settings = Settings(
        model=default_model(config, provider_id),
        model_provider=provider_id,
        cwd=cwd,
        approval_policy=configured_approval_policy(view, trust),
        approvals_reviewer=configured_reviewer(view),
        sandbox_policy=sandbox_policy(mode, view) if own is None else own.sandbox_policy,
        profile=own,
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
    if overrides.profile is not None:
        policy = overrides.profile.sandbox_policy
    changed: dict[str, object] = {
        name: value for name in _COPIED if (value := getattr(overrides, name)) is not None
    }
    if overrides.approvals_reviewer is not None:
        changed["approvals_reviewer"] = _todays_name(overrides.approvals_reviewer)
    if policy is not None:
        changed |= {"sandbox_policy": policy, "profile": overrides.profile}
    if overrides.mode is not None:
        changed["model"] = overrides.mode.settings.model
        changed["effort"] = overrides.mode.settings.reasoning_effort
        changed["mode"] = None if overrides.mode.mode == "default" else overrides.mode.mode
        changed["mode_instructions"] = overrides.mode.settings.developer_instructions
    if overrides.environments is not None:
        changed["environments"] = list(overrides.environments) or None
    elif overrides.cwd is not None:
        # Whoever names a folder alone means one of this machine.
        changed["environments"] = None
    elif overrides.workspace_roots is not None:
        changed |= _roots_of_first(settings, overrides.workspace_roots)
    if overrides.cwd is not None:
        # The folders of another place, or of none, are not those of this one.
        changed.setdefault("without_environment", None)
        if overrides.cwd != settings.cwd:
            changed.setdefault("workspace_roots", None)
    return settings.model_copy(update=changed)


def _roots_of_first(settings: Settings, roots: Sequence[str]) -> dict[str, object]:
    """Give the first environment other roots, if it is another machine."""
    match settings.environments:
        case [StoredEnvironment(id=first_id) as first, *others] if first_id != LOCAL:
            changed = first.model_copy(update={"workspace_roots": list(roots)})
            return {"environments": [changed, *others], "workspace_roots": settings.workspace_roots}
    return {}


def of_turn(settings: Settings) -> Settings:
    """Return what turns with these settings go by: in plan mode nothing is written."""
    policy = settings.sandbox_policy
    if settings.mode != "plan" or policy.type == "readOnly":
        return settings
    return read_only(settings, network=has_network(policy))


def read_only(settings: Settings, *, network: bool) -> Settings:
    """Return the same settings with a sandbox in which nothing is written.

    What a profile hides stays hidden.
    """
    profile = settings.profile_in_force
    if profile is not None:
        profile = without_writing(profile, network=network)
        return settings.model_copy(
            update={"sandbox_policy": profile.sandbox_policy, "profile": profile}
        )
    confined = ReadOnlySandboxPolicy(network_access=network)
    return settings.model_copy(update={"sandbox_policy": confined, "profile": None})


def of_review(settings: Settings, model: str | None) -> Settings:
    """Return the settings of a code review: no approval is asked for, the project is not changed.

    A thread whose commands are not confined by us stays so, as perhaps nothing can confine them.
    """
    policy = settings.sandbox_policy
    changed: dict[str, object] = {
        "model": model or settings.model,
        "approval_policy": "never",
        "base_instructions": REVIEW_INSTRUCTIONS,
        "mode": None,
        "mode_instructions": None,
        "personality": None,
    }
    changed_settings = settings.model_copy(update=changed)
    if isinstance(policy, WorkspaceWriteSandboxPolicy):
        return read_only(changed_settings, network=policy.network_access)
    return changed_settings


def profile_of(config: Config, name: str) -> StoredProfile | None:
    """Read a profile of the configuration; None for a built-in one.

    Raises:
        ConfigError: it is none of both, or something in it makes no sense.
    """
    if name in PERMISSION_PROFILES or name.startswith(":"):
        return None
    return read_profile(config, name, str(expand_user("~")))


def sandbox_mode_of(profile: str) -> SandboxMode:
    """Return the sandbox that a permission profile stands for.

    Raises:
        ConfigError: there is no such profile among the built-in ones.
    """
    if profile not in PERMISSION_PROFILES:
        raise ConfigError(f"default_permissions refers to unknown built-in profile `{profile}`")
    return PERMISSION_PROFILES[profile]


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


def configured_approval_policy(view: ConfigView, trust: str | None = None) -> AskForApproval:
    """Read `approval_policy`; what older versions knew is read as the nearest of today.

    Without one it depends on what the user has said of the project.

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
    chosen = view.choice("approval_policy", APPROVAL_POLICIES)
    if chosen is None:
        chosen = "untrusted" if trust == "untrusted" else "on-request"
    if chosen in ("on-failure", "granular"):
        # An older policy, and one that needs a table: both ask before anything risky.
        chosen = "on-request"
    return cast(Literal["untrusted", "on-request", "never"], chosen)


# Requirements of an administrator.

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
    if requirements.approval_policies is None and requirements.sandbox_modes is None:
        return settings, []
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
