"""What clients choose for threads and turns, from the members of their requests.

A member that is not built is refused by its name. Nothing is taken and forgotten: which member does
what is listed in docs/wire.md, "Settings of requests".
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from app_server.config.effective import Configuration
from app_server.config.values import Config
from app_server.handlers.threads.chosen.environments import (
    IsKnown,
    Resolve,
    chosen_environments,
)
from app_server.sessions.settings import Overrides, profile_of, sandbox_mode_of, with_overrides
from app_server.threads.log.state.thread import ThreadState
from protocol.errors import RpcError, invalid_member, invalid_params, invalid_request
from protocol.model import WireModel
from protocol.policy import SandboxMode
from protocol.rollout import StoredProfile
from protocol.threads import (
    ThreadForkParams,
    ThreadOverrides,
    ThreadResumeParams,
    ThreadSettingsUpdateParams,
    ThreadStartParams,
)
from protocol.turns import TurnStartParams
from protocol.values import CollaborationMode, Personality

MAX_PLUGINS = 1000


def _is_given(value: object) -> bool:
    return value is not None


NOT_BUILT: Mapping[type[WireModel], Mapping[str, Callable[[Any], bool]]] = {
    ThreadStartParams: {"experimental_raw_events": bool},
    ThreadResumeParams: {"history": _is_given},
    ThreadForkParams: {
        "attach_to_source": bool,
        "experimental_prediction_mode": bool,
        "experimental_disable_prediction_mcp": bool,
        "path": bool,
        "defer_goal_continuation": bool,
    },
    TurnStartParams: {
        "root_turn_id": _is_given,
        "tool_output": _is_given,
        "cyber_access_program": lambda program: program not in (None, "standard"),
    },
}
"""Members that are refused, and when: a value that asks for nothing is taken."""


def refuse_not_built(params: WireModel) -> None:
    """Refuse a request that asks for what is not built.

    Raises:
        RpcError: it names the first such member.
    """
    for name, asks in NOT_BUILT.get(type(params), {}).items():
        if asks(getattr(params, name)):
            field = type(params).model_fields[name].alias or name
            rule = "is not supported by this server"
            raise invalid_member(field, rule)


def thread_overrides(
    params: ThreadOverrides, resolve: Resolve, is_known: IsKnown, config: Config
) -> Overrides:
    """Collect what a client chose for a thread that is started, resumed or forked.

    Raises:
        RpcError: a value makes no sense, or not together with another.
        ConfigError: there is no such permission profile.
    """
    refuse_not_built(params)
    if params.permissions is not None and params.sandbox is not None:
        raise _not_together("permissions", "sandbox")
    chosen = chosen_environments(
        params.environments if isinstance(params, ThreadStartParams) else None,
        params.cwd,
        params.runtime_workspace_roots,
        resolve,
        is_known,
    )
    return replace(
        chosen,
        model=params.model,
        model_provider=params.model_provider,
        approval_policy=params.approval_policy,
        approvals_reviewer=params.approvals_reviewer,
        sandbox_mode=params.sandbox or _sandbox_mode(params.permissions),
        profile=_profile(params.permissions, config),
        service_tier=params.service_tier,
        personality=_personality(params),
    )


def members_without_effect(
    params: ThreadResumeParams, overrides: Overrides, state: ThreadState, config: Config
) -> list[str]:
    """Name the settings of a request to join a loaded thread that are not those in force.

    `config` is the one that the thread was loaded with.
    """
    settings, created = state.settings, state.created
    changed = with_overrides(settings, overrides, Config({}).view())
    differs = {
        "base_instructions": params.base_instructions
        != (settings.base_instructions or created.base_instructions),
        "developer_instructions": params.developer_instructions
        != (settings.developer_instructions or created.developer_instructions),
        "runtime_workspace_roots": changed.roots != settings.roots,
        "sandbox": changed.sandbox_policy.type != settings.sandbox_policy.type,
        "permissions": changed.sandbox_policy.type != settings.sandbox_policy.type
        or changed.profile_in_force != settings.profile_in_force,
        "config": config.override(params.config or {}).document != config.document,
    }
    names = [*ThreadOverrides.model_fields, "personality"]
    return [
        ThreadResumeParams.model_fields[name].alias or name
        for name in names
        if getattr(params, name) not in (None, {})
        and differs.get(name, getattr(changed, name, None) != getattr(settings, name, ()))
    ]


def turn_overrides(
    params: TurnStartParams | ThreadSettingsUpdateParams,
    resolve: Resolve,
    is_known: IsKnown,
    config: Config,
) -> Overrides:
    """Collect what a client chose for the turns of a thread that has its settings already.

    Raises:
        RpcError: a value makes no sense, or not together with another.
        ConfigError: there is no such permission profile.
    """
    refuse_not_built(params)
    if params.permissions is not None and params.sandbox_policy is not None:
        raise _not_together("permissions", "sandboxPolicy")
    if len(params.disabled_plugin_ids or ()) > MAX_PLUGINS:
        raise invalid_params(
            f"disabledPluginIds accepts at most {MAX_PLUGINS} entries", field="disabledPluginIds"
        )
    roots = params.runtime_workspace_roots if isinstance(params, TurnStartParams) else None
    chosen = chosen_environments(params.environments, params.cwd, roots, resolve, is_known)
    return replace(
        chosen,
        model=model_name(params.model),
        approval_policy=params.approval_policy,
        approvals_reviewer=params.approvals_reviewer,
        sandbox_mode=_sandbox_mode(params.permissions),
        profile=_profile(params.permissions, config),
        sandbox_policy=params.sandbox_policy,
        effort=params.effort,
        summary=params.summary,
        service_tier=params.service_tier,
        personality=params.personality,
        mode=_mode(params.collaboration_mode),
        disabled_plugin_ids=params.disabled_plugin_ids,
    )


def model_name(model: str | None) -> str | None:
    """Return the name of a model, if there is one.

    Raises:
        RpcError: it is blank.
    """
    if model is not None and not model.strip():
        raise invalid_params("model must not be empty", field="model")
    return model


def _not_together(one: str, other: str) -> RpcError:
    return invalid_request(f"`{one}` cannot be combined with `{other}`", "invalidSettings")


def _personality(params: ThreadOverrides) -> Personality | None:
    return (
        params.personality if isinstance(params, ThreadStartParams | ThreadResumeParams) else None
    )


async def profile_config(
    configuration: Configuration,
    permissions: str | None,
    overrides: Mapping[str, Any] | None = None,
) -> Config:
    """Read the configuration if a profile is one of it; else nothing is needed.

    Raises:
        ConfigError: it cannot be used.
    """
    return await configuration.read(overrides) if _is_own(permissions) else Config({})


def _is_own(permissions: str | None) -> bool:
    return permissions is not None and not permissions.startswith(":")


def _sandbox_mode(profile: str | None) -> SandboxMode | None:
    return sandbox_mode_of(profile) if profile and not _is_own(profile) else None


def _profile(name: str | None, config: Config) -> StoredProfile | None:
    return None if name is None else profile_of(config, name)


def _mode(mode: CollaborationMode | None) -> CollaborationMode | None:
    if mode is not None:
        model_name(mode.settings.model)
    return mode
