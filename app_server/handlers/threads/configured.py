"""The settings in force for a thread: the user's, those of its project, and the request's.

Source: docs/config.md, "Settings of projects".
"""

from collections.abc import Mapping, Sequence
from typing import Any

import anyio.to_thread

from app_server.config.effective import Configuration
from app_server.config.values import Config
from app_server.permissions.project_config import read_project_layers, with_projects


async def config_for(
    configuration: Configuration, overrides: Mapping[str, Any] | None, folder: str | None
) -> tuple[Config, Sequence[str]]:
    """Read the settings for a thread in a folder, and what its user should be warned of.

    `folder` None is a thread without one.

    Raises:
        ConfigError: a file cannot be read, or is no TOML.
    """
    config = await configuration.read(overrides)
    if folder is None:
        return config, ()
    layers = await anyio.to_thread.run_sync(read_project_layers, config, folder)
    warnings = [layer.warning for layer in layers]
    return with_projects(config, layers), [text for text in warnings if text is not None]
