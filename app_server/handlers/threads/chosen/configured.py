"""The settings in force for a thread: the user's, those of its project, and the request's.

Source: docs/config.md, "Settings of projects".
"""

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, TypeVar

import anyio.to_thread

from app_server.config.effective import Configuration
from app_server.config.values import Config
from app_server.permissions.project_config import read_project_layers, with_projects
from app_server.runtime.loader import load
from protocol.threads import ThreadOverrides

P = TypeVar("P", bound=ThreadOverrides)


async def with_profile(configuration: Configuration, params: P) -> P:
    """Put the settings of the profile that a request names below its own.

    Raises:
        ConfigError: there is no such profile, or its file cannot be used.
    """
    if params.profile is None:
        return params
    below = await configuration.read_profile(params.profile)
    config = Config({}).override(below.document).override(params.config or {})
    return params.model_copy(update={"config": config.document})


async def config_for(
    configuration: Configuration, overrides: Mapping[str, Any] | None, folder: str | None
) -> tuple[Config, Sequence[str]]:
    """Read the settings for a thread in a folder, and what its user should be warned of.

    `folder` None is a thread without one.

    Raises:
        ConfigError: a file cannot be read, or is no TOML.
    """
    config = await configuration.read(overrides)
    warnings = await _unknown_overrides(overrides) if overrides else []
    if folder is None:
        return config, warnings
    layers = await anyio.to_thread.run_sync(read_project_layers, config, folder)
    warnings += [text for layer in layers for text in layer.warnings]
    return with_projects(config, layers), warnings


async def _unknown_overrides(overrides: Mapping[str, Any]) -> list[str]:
    keys = await load(_unknown_keys)
    unknown = keys.unknown_in_overrides(overrides, "config of the request")
    return [keys.ignored_text(unknown)] if unknown else []


def _unknown_keys() -> ModuleType:
    # Most requests override nothing.
    from app_server.config.key_check import unknown_keys

    return unknown_keys
