"""The settings in force for a thread: the user's, those of its project, and the request's.

Source: docs/config.md, "Settings of projects".
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import anyio.to_thread

from app_server.config.effective import Configuration
from app_server.config.key_check import ignored_text, unknown_in_overrides
from app_server.config.requirements import requirements_of
from app_server.config.values import ChosenProfile, Config
from app_server.extensions.plugins.selected_roots import roots_of
from app_server.handlers.services import Services
from app_server.permissions.project_config import read_project_layers, with_projects
from app_server.sessions.settings import Overrides, with_overrides, with_required
from app_server.threads.log.state import ThreadState
from protocol.log.rollout import Settings
from protocol.threads.start import ThreadOverrides

P = TypeVar("P", bound=ThreadOverrides)


async def with_profile(configuration: Configuration, params: P) -> tuple[P, ChosenProfile | None]:
    """Put the settings of the profile that a request names below its own; return both.

    Raises:
        ConfigError: there is no such profile, or its file cannot be used.
    """
    if params.profile is None:
        return params, None
    chosen = await configuration.read_profile(params.profile, params.config or {})
    return params.model_copy(update={"config": chosen.layer}), chosen


async def config_for(
    configuration: Configuration,
    overrides: Mapping[str, Any] | None,
    folder: str | None,
    chosen: ChosenProfile | None = None,
) -> tuple[Config, Sequence[str]]:
    """Read the settings for a thread in a folder, and what its user should be warned of.

    `folder` None is a thread without one; `chosen` is the profile that is among `overrides`.

    Raises:
        ConfigError: a file cannot be read, or is no TOML.
    """
    config = replace(await configuration.read(overrides), chosen=chosen)
    warnings = _unknown_overrides(overrides) if overrides else []
    if folder is None:
        return config, warnings
    layers = await anyio.to_thread.run_sync(read_project_layers, config, folder)
    warnings += [text for layer in layers for text in layer.warnings]
    return with_projects(config, layers), warnings


async def settings_over(
    services: Services,
    thread_id: str,
    before: ThreadState,
    params: ThreadOverrides,
    overrides: Overrides,
    profile: ChosenProfile | None,
) -> tuple[Config, Settings, Sequence[str]]:
    """Choose the settings of a thread that has some already, or is forked from one that has.

    `profile` is already among the settings of `params`. Returns the configuration in force too, and
    what the user should be warned of.

    Raises:
        ConfigError: a setting cannot be used.
    """
    folder = overrides.cwd or before.settings.cwd
    config, of_project = await config_for(services.configuration, params.config, folder, profile)
    requirements = requirements_of(config)
    chosen = with_overrides(before.settings, overrides, config.view())
    settings, replaced = with_required(chosen, requirements)
    roots = roots_of(before.created.selected_capability_roots or ())
    problems = await services.plugins.select(thread_id, roots)
    return config, settings, (*of_project, *requirements.warnings, *replaced, *problems)


def _unknown_overrides(overrides: Mapping[str, Any]) -> list[str]:
    unknown = unknown_in_overrides(overrides, "config of the request")
    return [ignored_text(unknown)] if unknown else []
