"""config/*, configRequirements/read, permissionProfile/list: settings are shown, and written.

All edits of a request are written to config.toml, or to the profile over it, or none is. What would
not be a usable configuration is refused.
Source: docs/config.md, "Layers", "Requirements", "Permission profiles", "What clients write".
"""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import anyio.to_thread

from app_server.config.editing.file import ChangedMeanwhile, ConfigFile
from app_server.config.editing.keys import (
    MAX_STEPS,
    BadEdit,
    split_key_path,
    steps_of,
    take,
    value_at,
)
from app_server.config.effective import Configuration
from app_server.config.key_check import refuse_unknown_overrides
from app_server.config.masking import refuse_marks
from app_server.config.requirements import NetworkDemand, Requirements
from app_server.config.values import Config, ConfigError, Document, NotRecorded
from app_server.handlers.errors import config_failures, settings_failures
from app_server.handlers.integrations.skills import with_parts
from app_server.handlers.server.config_changes import config_refusal, reload_threads
from app_server.handlers.server.config_check import check_settings
from app_server.handlers.server.config_layers import (
    Layer,
    effective_config,
    layers_of,
    origins_of,
    shown_layer,
    shown_part,
    version_of,
)
from app_server.handlers.services import Services
from app_server.handlers.serving import RequestContext, serves
from app_server.handlers.views.pages import page
from app_server.permissions.profiles import profile_names, read_profile
from app_server.permissions.project_config import read_project_layers, with_projects
from app_server.sessions.settings import PERMISSION_PROFILES
from app_server.threads.operations import is_again
from protocol.contract.specs import NoParams
from protocol.jsonrpc.errors import internal_error
from protocol.log.rollout import StoredProfile
from protocol.server.config import (
    ConfigBatchWriteParams,
    ConfigEdit,
    ConfigReadParams,
    ConfigReadResponse,
    ConfigRequirements,
    ConfigRequirementsReadResponse,
    ConfigValueWriteParams,
    ConfigWriteResponse,
    NetworkRequirements,
    OverriddenMetadata,
    PermissionProfileListParams,
    PermissionProfileListResponse,
    PermissionProfileSummary,
    UserConfigLayerSource,
)
from protocol.turns.policy import ReadOnlySandboxPolicy, SandboxMode


@serves("config/read")
async def read_config(context: RequestContext, params: ConfigReadParams) -> ConfigReadResponse:
    """Return the settings in force in a folder, without keys that can hold secrets."""
    cwd = None if params.cwd is None else context.services.configuration.resolve(params.cwd)
    with config_failures():
        config = await context.services.configuration.read_as_is()
        return await anyio.to_thread.run_sync(
            _read, config, params.include_layers, context.services.configuration, cwd
        )


@serves("configRequirements/read")
async def read_requirements(
    context: RequestContext, params: NoParams
) -> ConfigRequirementsReadResponse:
    """Return an administrator's requirements, as far as this server enforces them."""
    with settings_failures("failed to read configuration layers"):
        demanded = await context.services.configuration.requirements()
    return ConfigRequirementsReadResponse(
        requirements=_shown(demanded) if demanded.demands_anything else None
    )


@serves("permissionProfile/list")
async def list_permission_profiles(
    context: RequestContext, params: PermissionProfileListParams
) -> PermissionProfileListResponse:
    """List the profiles, and whether an administrator lets them be chosen."""
    with settings_failures("failed to read configuration layers"):
        allowed = (await context.services.configuration.requirements()).sandbox_modes
    with config_failures():
        config = await context.services.configuration.read()
        own = [(name, read_profile(config, name, "/")) for name in profile_names(config)]
    modes: list[tuple[str, str]] = [*PERMISSION_PROFILES.items()]
    modes += [(name, _mode(profile)) for name, profile in own]
    profiles = [
        PermissionProfileSummary(id=name, allowed=allowed is None or mode in allowed)
        for name, mode in modes
    ]
    data, next_cursor = page(profiles, params.cursor, params.limit, "permission profiles")
    return PermissionProfileListResponse(data=data, next_cursor=next_cursor)


def _read(
    config: Config, include_layers: bool, configuration: Configuration, cwd: str | None
) -> ConfigReadResponse:
    projects = [] if cwd is None else read_project_layers(config, cwd)
    config = with_projects(config, projects)
    documents = [source.document for source in config.sources]
    layers = layers_of(config, configuration, documents, projects)
    return ConfigReadResponse(
        config=effective_config(config),
        origins=origins_of(layers),
        layers=[shown_layer(layer) for layer in layers] if include_layers else None,
    )


def _shown(demanded: Requirements) -> ConfigRequirements:
    policies, modes = demanded.approval_policies, demanded.sandbox_modes
    return ConfigRequirements(
        allowed_approval_policies=None if policies is None else list(policies),
        # A client cannot choose an external sandbox by mode.
        allowed_sandbox_modes=(
            None
            if modes is None
            else [cast(SandboxMode, mode) for mode in modes if mode != "external-sandbox"]
        ),
        network=None if demanded.network is None else _shown_network(demanded.network),
    )


def _shown_network(demanded: NetworkDemand) -> NetworkRequirements:
    domains = demanded.domains.items()
    return NetworkRequirements(
        enabled=True,
        domains=dict(demanded.domains),
        managed_allowed_domains_only=demanded.allowed_domains_only or None,
        allowed_domains=[name for name, said in domains if said == "allow"],
        denied_domains=[name for name, said in domains if said == "deny"],
        allow_local_binding=demanded.allow_local_binding,
    )


def _mode(profile: StoredProfile) -> str:
    """Return the sandbox mode that says most of it."""
    reads_only = isinstance(profile.sandbox_policy, ReadOnlySandboxPolicy)
    return "read-only" if reads_only else "workspace-write"


EDIT_S = 20.0
"""For the values of one request, without the last; a change in a file of 100 KB takes 1.3 s."""

CONFLICT = "Configuration was modified since last read. Fetch latest version and retry."


@serves("config/value/write")
async def write_config_value(
    context: RequestContext, params: ConfigValueWriteParams
) -> ConfigWriteResponse:
    """Write one setting."""
    edit = ConfigEdit(
        key_path=params.key_path, value=params.value, merge_strategy=params.merge_strategy
    )
    return await write_edits(context.services, [edit], params.file_path, params.expected_version)


@serves("config/batchWrite")
async def write_config_values(
    context: RequestContext, params: ConfigBatchWriteParams
) -> ConfigWriteResponse:
    """Write settings, and hand them to loaded threads after the answer if that is wanted."""
    written = await write_edits(
        context.services, params.edits, params.file_path, params.expected_version
    )
    if params.reload_user_config:
        await reload_threads(context, context.services, "new settings", refresh=True)
    return written


async def write_edits(
    services: Services,
    edits: Sequence[ConfigEdit],
    file_path: str | None = None,
    expected: str | None = None,
) -> ConfigWriteResponse:
    """Write settings into a file of the user's: all of them, or none.

    Raises:
        RpcError: they make no sense, or the file cannot be written.
    """
    file, path = _file(services, file_path)
    try:
        edits = with_parts(edits)
        for edit in edits:
            refuse_marks(edit.value, split_key_path(edit.key_path))
    except (BadEdit, ConfigError) as exc:
        raise config_refusal(str(exc)) from exc
    with settings_failures("failed to load configuration"):
        around = await services.configuration.read_as_is()
    result: list[ConfigWriteResponse] = []

    def changed(edit: Any, found: Config) -> str:
        is_conflict = expected not in (None, version_of(found.document))
        if is_conflict and not is_again():
            raise config_refusal(CONFLICT, "configVersionConflict")
        text = _edited(edit, found, edits)
        if is_conflict and text != found.text:
            # A request that was cut off may have written this itself.
            raise config_refusal(CONFLICT, "configVersionConflict")
        documents = [source.document for source in around.sources]
        documents[services.part(_files).index(file)] = found.document
        config = _checked(documents, around, found.document)
        layers = layers_of(config, services.configuration, documents)
        overridden = _overridden(config, layers, found.document, edits)
        result.append(
            ConfigWriteResponse(
                status="ok" if overridden is None else "okOverridden",
                version=version_of(found.document),
                file_path=path,
                overridden_metadata=overridden,
            )
        )
        return text

    try:
        with settings_failures("failed to load configuration"):
            await file.change(changed)
    except ChangedMeanwhile as exc:
        raise config_refusal(CONFLICT, "configVersionConflict") from exc
    except NotRecorded as exc:
        text = f"failed to write {file.path.name}: {exc}"
        raise internal_error(text, "storageFailed") from exc
    return result[0]


def _file(services: Services, chosen: str | None) -> tuple[ConfigFile, str]:
    """Return what is written, and the path to answer with; only the user's files are."""
    if chosen is None:
        return services.part(_files)[-1], str(services.part(_files)[-1].path)
    for file in services.part(_files) if "\0" not in chosen and Path(chosen).is_absolute() else ():
        if os.path.realpath(chosen) == os.path.realpath(file.path):
            return file, os.path.normpath(chosen)
    raise config_refusal("Only writes to the user config are allowed", "configLayerReadonly")


def _edited(edit: Any, found: Config, edits: Sequence[ConfigEdit]) -> str:
    """Return the new text of a file; changes `found.document`."""
    text, steps, give_up = found.text, 0, time.monotonic() + EDIT_S
    try:
        for wanted in edits:
            for step in list(steps_of(found.document, wanted)):
                steps += 1
                if steps > MAX_STEPS:
                    raise BadEdit(f"a request writes at most {MAX_STEPS} values")
                if time.monotonic() > give_up:
                    raise BadEdit(f"so many values in so large a file take over {EDIT_S:g} s")
                take(found.document, step)
                if step.value is None:
                    text = edit.remove(text, step.path)
                else:
                    text = edit.set_value(text, step.path, step.value)
    except BadEdit as exc:
        raise config_refusal(str(exc)) from exc
    return text


def _checked(documents: Sequence[Document], around: Config, changed: Document) -> Config:
    """Return the configuration in force with these files; one of them was changed."""
    config = Config(documents[0], requirements=around.requirements)
    try:
        if changed is documents[0]:
            check_settings(config)
        for document in documents[1:]:
            config = config.with_profile(Config(document))
        if around.is_strict:
            # It would end the next start, and be refused by every request until then.
            refuse_unknown_overrides(changed, "the file")
        config = config.with_layers(around.layers)
        check_settings(config)
    except ConfigError as exc:
        raise config_refusal(f"Invalid configuration: {exc}") from exc
    return config


def _overridden(
    config: Config, layers: Sequence[Layer], written: Document, edits: Sequence[ConfigEdit]
) -> OverriddenMetadata | None:
    """Find the first setting that was written and has no effect."""
    for edit in edits:
        path = split_key_path(edit.key_path)
        value = value_at(config.document, path)
        if value is not None and value != value_at(written, path):
            # Of a table the highest layer with a part of it decides.
            over = next(one for one in layers if value_at(one.document, path) is not None)
            what = "profile" if isinstance(over.source, UserConfigLayerSource) else "session flags"
            return OverriddenMetadata(
                message=f"Overridden by {what}",
                overriding_layer=over.metadata,
                effective_value=value_at(shown_part(config.document), path),
            )
    return None


def _files(services: Services) -> list[ConfigFile]:
    """Return the files that may be written: config.toml, and a profile behind it."""
    files = [services.config_file]
    if (profile := services.configuration.profile_file) is not None:
        files.append(ConfigFile(services.home, profile.name))
    return files
