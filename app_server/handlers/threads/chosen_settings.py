"""What clients choose for threads and turns, from the members of their requests.

A member that is not built is refused by its name. Nothing is taken and forgotten: which member does
what is listed in docs/wire.md, "Settings of requests".
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from app_server.config.effective import Configuration
from app_server.config.values import Config
from app_server.sessions.settings import Overrides, profile_of, sandbox_mode_of, with_overrides
from app_server.threads.log.state.thread import ThreadState
from protocol.errors import RpcError, invalid_params, invalid_request
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
from protocol.turns import TurnEnvironmentParams, TurnStartParams
from protocol.values import CollaborationMode, Personality

MAX_PLUGINS = 1000
MAX_ROOTS = 100
LOCAL = "local"

Resolve: TypeAlias = Callable[[str | None], str]
"""From a path of a client's, which may be relative, to an absolute one."""


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
            raise invalid_params(f"Invalid params: `{field}` {rule}", field=field, rule=rule)


def thread_overrides(params: ThreadOverrides, resolve: Resolve, config: Config) -> Overrides:
    """Collect what a client chose for a thread that is started, resumed or forked.

    Raises:
        RpcError: a value makes no sense, or not together with another.
        ConfigError: there is no such permission profile.
    """
    refuse_not_built(params)
    if params.permissions is not None and params.sandbox is not None:
        raise _not_together("permissions", "sandbox")
    place = _place(params.environments if isinstance(params, ThreadStartParams) else None)
    return Overrides(
        model=params.model,
        model_provider=params.model_provider,
        cwd=_folder(place, params.cwd, resolve),
        approval_policy=params.approval_policy,
        approvals_reviewer=params.approvals_reviewer,
        sandbox_mode=params.sandbox or _sandbox_mode(params.permissions),
        profile=_profile(params.permissions, config),
        service_tier=params.service_tier,
        personality=_personality(params),
        workspace_roots=_roots(place, params.runtime_workspace_roots),
        without_environment=None if place is None else place.is_none,
    )


def members_without_effect(
    params: ThreadResumeParams, overrides: Overrides, state: ThreadState
) -> list[str]:
    """Name the settings of a request to join a loaded thread that are not those in force."""
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
    }
    names = [*ThreadOverrides.model_fields, "personality"]
    return [
        ThreadResumeParams.model_fields[name].alias or name
        for name in names
        if getattr(params, name) not in (None, {})
        and differs.get(name, getattr(changed, name, None) != getattr(settings, name, ()))
    ]


def turn_overrides(
    params: TurnStartParams | ThreadSettingsUpdateParams, resolve: Resolve, config: Config
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
    place = _place(params.environments)
    roots = params.runtime_workspace_roots if isinstance(params, TurnStartParams) else None
    return Overrides(
        model=model_name(params.model),
        cwd=_folder(place, params.cwd, resolve),
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
        workspace_roots=_roots(place, roots),
        without_environment=None if place is None else place.is_none,
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


def local_folder(
    environments: Sequence[TurnEnvironmentParams] | None, resolve: Resolve
) -> str | None:
    """Return the folder of a selection of environments; None if there is no selection.

    Raises:
        RpcError: it is not the one environment that there is.
    """
    place = _place(environments)
    if place is not None and place.is_none:
        raise _one_environment()
    return _folder(place, None, resolve)


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


@dataclass(frozen=True, slots=True)
class _Place:
    """The environment that a client selected."""

    is_none: bool
    cwd: str | None = None
    roots: Sequence[str] | None = None


def _place(environments: Sequence[TurnEnvironmentParams] | None) -> _Place | None:
    if environments is None:
        return None
    for environment in environments:
        if environment.environment_id != LOCAL:
            raise invalid_request(
                f"unknown turn environment id `{environment.environment_id}`",
                "unknownEnvironment",
                environmentId=environment.environment_id,
            )
    match environments:
        case []:
            return _Place(is_none=True)
        case [environment]:
            return _Place(
                is_none=False, cwd=environment.cwd, roots=environment.runtime_workspace_roots
            )
    raise _one_environment()


def _one_environment() -> RpcError:
    return invalid_request("a thread has one environment here: `local`", "environmentsNotOffered")


def _folder(place: _Place | None, cwd: str | None, resolve: Resolve) -> str | None:
    if place is not None and place.cwd is not None:
        cwd = place.cwd
    return None if cwd is None else resolve(cwd)


def _roots(place: _Place | None, given: Sequence[str] | None) -> Sequence[str] | None:
    roots = given if place is None or place.roots is None else place.roots
    if roots is None:
        return None
    field = "runtimeWorkspaceRoots"
    if len(roots) > MAX_ROOTS:
        rule = f"accepts at most {MAX_ROOTS} entries"
        raise invalid_params(f"Invalid params: `{field}` {rule}", field=field, rule=rule)
    for index, root in enumerate(roots):
        if not root.startswith("/"):
            field, rule = f"{field}[{index}]", "must be an absolute path"
            raise invalid_params(f"Invalid params: `{field}` {rule}", field=field, rule=rule)
    return list(roots)
