"""Settings, environments and their folders that clients choose for threads and turns.

A member that is not built is refused by its name. Nothing is taken and forgotten: which member does
what is listed in docs/wire.md, "Settings of requests".
Source: docs/environments.md, "Threads in an environment".
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from app_server.config.requirements import Requirements
from app_server.config.values import Config
from app_server.handlers.services import Services
from app_server.permissions.sandbox.policy import effective_policy_of
from app_server.rpc.dispatch import storage_failed
from app_server.runtime.loader import load
from app_server.sessions.session import ThreadSession
from app_server.sessions.settings import (
    Overrides,
    profile_of,
    refuse_overrides,
    sandbox_mode_of,
    with_overrides,
    with_required,
)
from protocol.jsonrpc.errors import RpcError, invalid_member, invalid_params, invalid_request
from protocol.log.rollout import LOCAL, Settings, StoredEnvironment, StoredProfile
from protocol.model import WireModel
from protocol.threads.settings import ThreadSettingsUpdateParams
from protocol.threads.start import (
    ThreadForkParams,
    ThreadOverrides,
    ThreadResumeParams,
    ThreadStartParams,
)
from protocol.turns.policy import SandboxMode
from protocol.turns.requests import TurnStartParams
from protocol.turns.turn import TurnEnvironmentParams

if TYPE_CHECKING:
    from app_server.handlers.host.environments import SharedEnvironments

MAX_PLUGINS = 1000


NOTHING_CONFIGURED = Config({}).view()
"""For threads that have their settings: the configuration says nothing of them any more."""

_OFF = (None, False)

NOT_BUILT: Mapping[type[WireModel], Mapping[str, Collection[object]]] = {
    ThreadStartParams: {"experimental_raw_events": _OFF},
    ThreadResumeParams: {"history": (None,)},
    ThreadForkParams: {
        "attach_to_source": _OFF,
        "experimental_prediction_mode": _OFF,
        "experimental_disable_prediction_mcp": _OFF,
        "path": (None, ""),
        "defer_goal_continuation": _OFF,
    },
    TurnStartParams: {
        "root_turn_id": (None,),
        "tool_output": (None,),
        "cyber_access_program": (None, "standard"),
    },
}
"""Members that are refused, with the values that ask for nothing and are taken."""


def refuse_not_built(params: WireModel) -> None:
    """Refuse a request that asks for what is not built.

    Raises:
        RpcError: it names the first such member.
    """
    for name, taken in NOT_BUILT.get(type(params), {}).items():
        if getattr(params, name) not in taken:
            field = type(params).model_fields[name].alias or name
            raise invalid_member(field, "is not supported by this server")


async def thread_overrides(services: Services, params: ThreadOverrides) -> Overrides:
    """Collect what a client chose for a thread that is started, resumed or forked.

    Raises:
        RpcError: a value makes no sense, or not together with another.
        ConfigError: there is no such permission profile.
    """
    refuse_not_built(params)
    if params.permissions is not None and params.sandbox is not None:
        raise _not_together("permissions", "sandbox")
    if isinstance(params, ThreadStartParams):
        await _look_for_unknown(services, params.environments)
    chosen = chosen_environments(
        services,
        params.environments if isinstance(params, ThreadStartParams) else None,
        params.cwd,
        params.runtime_workspace_roots,
    )
    personality = None
    if isinstance(params, ThreadStartParams | ThreadResumeParams):
        personality = params.personality
    return replace(
        chosen,
        model=params.model,
        model_provider=params.model_provider,
        approval_policy=params.approval_policy,
        approvals_reviewer=params.approvals_reviewer,
        sandbox_mode=params.sandbox or _sandbox_mode(params.permissions),
        profile=await _profile(services, params.permissions, params.config),
        service_tier=params.service_tier,
        personality=personality,
    )


def ignored_text(
    params: ThreadResumeParams, overrides: Overrides, session: ThreadSession
) -> str | None:
    """Name the settings of a request to join a loaded thread that are not those in force.

    None: all of them are.
    """
    settings, created = session.log.state.settings, session.log.state.created
    changed = with_overrides(settings, overrides, NOTHING_CONFIGURED)
    differs = {
        "base_instructions": params.base_instructions
        != (settings.base_instructions or created.base_instructions),
        "developer_instructions": params.developer_instructions
        != (settings.developer_instructions or created.developer_instructions),
        "runtime_workspace_roots": changed.roots != settings.roots,
        "sandbox": changed.sandbox_policy.type != settings.sandbox_policy.type,
        "permissions": changed.sandbox_policy.type != settings.sandbox_policy.type
        or changed.profile_in_force != settings.profile_in_force,
        "config": session.servers.config.override(params.config or {}).document
        != session.servers.config.document,
    }
    names = [*ThreadOverrides.model_fields, "personality"]
    ignored = ", ".join(
        f"`{ThreadResumeParams.model_fields[name].alias or name}`"
        for name in names
        if getattr(params, name) not in (None, {})
        and differs.get(name, getattr(changed, name, None) != getattr(settings, name, ()))
    )
    if not ignored:
        return None
    return (
        f"the thread is loaded already, so {ignored} of thread/resume changed nothing; "
        "thread/settings/update changes settings"
    )


NOTHING_CHOSEN = Overrides()

NO_SETTINGS = frozenset(
    {
        "thread_id",
        "input",
        "client_user_message_id",
        "turn_trigger",
        "parent_turn_id",
        "responsesapi_client_metadata",
        "responsesapi_client_metadata_patch",
        "additional_context",
        "service_tier_for_turn",
        "output_schema",
        "mcp_meta_by_server",
    }
)
"""Members of `turn/start` that choose no setting, and are taken whatever they say."""


async def turn_overrides(
    services: Services, params: TurnStartParams | ThreadSettingsUpdateParams
) -> Overrides:
    """Collect what a client chose for the turns of a thread that has its settings already.

    Raises:
        RpcError: a value makes no sense, or not together with another.
        ConfigError: there is no such permission profile.
    """
    if params.model_fields_set <= NO_SETTINGS:
        return NOTHING_CHOSEN
    refuse_not_built(params)
    if params.permissions is not None and params.sandbox_policy is not None:
        raise _not_together("permissions", "sandboxPolicy")
    if len(params.disabled_plugin_ids or ()) > MAX_PLUGINS:
        raise invalid_params(
            f"disabledPluginIds accepts at most {MAX_PLUGINS} entries", field="disabledPluginIds"
        )
    roots = params.runtime_workspace_roots if isinstance(params, TurnStartParams) else None
    await _look_for_unknown(services, params.environments)
    chosen = chosen_environments(services, params.environments, params.cwd, roots)
    if params.collaboration_mode is not None:
        model_name(params.collaboration_mode.settings.model)
    return replace(
        chosen,
        model=model_name(params.model),
        approval_policy=params.approval_policy,
        approvals_reviewer=params.approvals_reviewer,
        sandbox_mode=_sandbox_mode(params.permissions),
        profile=await _profile(services, params.permissions),
        sandbox_policy=params.sandbox_policy,
        effort=params.effort,
        summary=params.summary,
        service_tier=params.service_tier,
        personality=params.personality,
        mode=params.collaboration_mode,
        disabled_plugin_ids=params.disabled_plugin_ids,
    )


async def pin_roots(services: Services, overrides: Overrides, settings: Settings) -> None:
    """Pin the roots that a client has named for a thread; see PinnedRoots.pin."""
    if overrides.names_places:
        await services.commands.pin_roots(effective_policy_of(settings, services.machine_paths))


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


def _sandbox_mode(profile: str | None) -> SandboxMode | None:
    return sandbox_mode_of(profile) if profile and profile.startswith(":") else None


async def _profile(
    services: Services, name: str | None, overrides: Mapping[str, Any] | None = None
) -> StoredProfile | None:
    """Read a profile of the configuration; a built-in one needs none."""
    if name is None or name.startswith(":"):
        return None
    return profile_of(await services.configuration.read(overrides), name)


def chosen_settings(
    settings: Settings, overrides: Overrides, requirements: Requirements, *, without_tier: bool
) -> tuple[Settings, Sequence[str]]:
    """Put what a client chose over settings, and over that what an administrator demands.

    `without_tier` clears the service tier. The texts say what was replaced.

    Raises:
        SettingNotAllowed: an administrator does not allow what the client chose.
    """
    if overrides is NOTHING_CHOSEN:
        chosen = settings
    else:
        chosen = with_overrides(settings, overrides, NOTHING_CONFIGURED)
        refuse_overrides(overrides, chosen, requirements)
    if without_tier:
        chosen = chosen.model_copy(update={"service_tier": None})
    return with_required(chosen, requirements)


MAX_ROOTS = 100
"""Of one environment."""

ROOTS = "runtimeWorkspaceRoots"


def chosen_environments(
    services: Services,
    environments: Sequence[TurnEnvironmentParams] | None,
    cwd: str | None = None,
    roots: Sequence[str] | None = None,
) -> Overrides:
    """Collect the environments and folders of a request, and nothing else of it.

    `cwd` and `roots` are the members of the request itself. The folder of an entry for this machine
    wins over `cwd`, and the roots of the first entry over `roots`.

    Raises:
        RpcError: an id that is not known, or twice; folders that are not absolute; too many roots.
    """
    given, resolve = _roots(roots, ROOTS), services.configuration.resolve
    if environments is None:
        return Overrides(cwd=None if cwd is None else resolve(cwd), workspace_roots=given)
    stored: list[StoredEnvironment] = []
    here: str | None = cwd
    of_here: list[str] | None = None
    for index, one in enumerate(environments):
        member = f"environments[{index}]"
        _check_id(one.environment_id, f"{member}.environmentId", stored, services)
        of_entry = _roots(one.runtime_workspace_roots, f"{member}.{ROOTS}")
        if of_entry is None and index == 0:
            of_entry = given
        if one.environment_id == LOCAL:
            here, of_here = one.cwd, of_entry
            stored.append(StoredEnvironment(id=LOCAL))
        else:
            _check_folder(one.cwd, f"{member}.cwd")
            stored.append(
                StoredEnvironment(id=one.environment_id, cwd=one.cwd, workspace_roots=of_entry)
            )
    ids = [one.id for one in stored]
    return Overrides(
        cwd=None if here is None else resolve(here),
        workspace_roots=of_here if stored else given,
        without_environment=LOCAL not in ids,
        environments=[] if ids in ([], [LOCAL]) else stored,
    )


async def _look_for_unknown(
    services: Services, environments: Sequence[TurnEnvironmentParams] | None
) -> None:
    """Look whether clients of other servers have added the environments that are not known here."""
    if not environments:
        return
    if all(services.environments.has(one.environment_id) for one in environments):
        return
    shared = services.part(await load(_shared_environments))
    try:
        await shared.refresh()
    except OSError as exc:
        raise storage_failed(exc, "environments cannot be read") from exc


def _shared_environments() -> "type[SharedEnvironments]":
    # It brings the WebSocket client, which is imported with the first environment.
    from app_server.handlers.host.environments import SharedEnvironments

    return SharedEnvironments


def _check_id(
    environment_id: str, field: str, before: Sequence[StoredEnvironment], services: Services
) -> None:
    if not services.environments.has(environment_id):
        raise _refused("unknown", "unknownEnvironment", environment_id, field)
    if any(one.id == environment_id for one in before):
        raise _refused("duplicate", "duplicateEnvironment", environment_id, field)


def _check_folder(cwd: str, field: str) -> None:
    # The wire has paths of Windows too, and no exec server runs there.
    if not cwd.startswith("/") or "\0" in cwd:
        rule = "must be an absolute POSIX path"
        raise invalid_member(field, rule)


def _refused(what: str, word: str, environment_id: str, field: str) -> RpcError:
    message = f"{what} turn environment id `{environment_id}`"
    return invalid_request(message, word, environmentId=environment_id, field=field)


def _roots(roots: Sequence[str] | None, field: str) -> list[str] | None:
    if roots is None:
        return None
    if len(roots) > MAX_ROOTS:
        rule = f"accepts at most {MAX_ROOTS} entries"
        raise invalid_member(field, rule)
    for index, root in enumerate(roots):
        if not root.startswith("/"):
            entry, rule = f"{field}[{index}]", "must be an absolute path"
            raise invalid_member(entry, rule)
    return list(roots)
