"""Settings that a server reads from its configuration once."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from app_server.config.effective import Configuration
from app_server.config.requirements import requirements_of
from app_server.config.values import Config, ConfigError
from app_server.observability.analytics.settings import counts_use
from app_server.sessions.memory_budget import MemorySettings, read_memory_settings

logger = logging.getLogger(__name__)

T = TypeVar("T")

UNLOAD_DELAY_S = 60.0


@dataclass(frozen=True, slots=True)
class FirstSettings:
    """Settings that hold until the server ends."""

    unload_delay_s: float = UNLOAD_DELAY_S
    """After which a quiet thread is unloaded."""
    memory: MemorySettings = field(default_factory=MemorySettings)
    counts_use: bool = False


async def read_first_settings(configuration: Configuration) -> FirstSettings:
    """Read what is read once; the default stands for what cannot be used.

    The check of the configuration logs what that is
    (app_server/handlers/server/config_problems.py).
    """
    default = FirstSettings()
    try:
        config = await configuration.read()
    except ConfigError:
        return default
    for warning in requirements_of(config).warnings:
        logger.warning("%s", warning)
    return FirstSettings(
        unload_delay_s=_read(_unload_delay_s, config, default.unload_delay_s),
        memory=_read(read_memory_settings, config, default.memory),
        counts_use=_read(counts_use, config, default.counts_use),
    )


def _unload_delay_s(config: Config) -> float:
    delay_s = config.view().integer("thread_unload_delay_secs")
    return UNLOAD_DELAY_S if delay_s is None else float(delay_s)


def _read(read: Callable[[Config], T], config: Config, default: T) -> T:
    try:
        return read(config)
    except ConfigError:
        return default
