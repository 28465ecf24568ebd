"""What a server reads of its configuration once."""

import logging
from dataclasses import dataclass, field

from app_server.analytics.settings import counts_use
from app_server.config.effective import Configuration
from app_server.config.requirements import requirements_of
from app_server.config.values import ConfigError
from app_server.memory.settings import MemorySettings, read_memory_settings

logger = logging.getLogger(__name__)

UNLOAD_DELAY_S = 1800.0


@dataclass(frozen=True, slots=True)
class FirstSettings:
    """What holds until the server ends."""

    unload_delay_s: float = UNLOAD_DELAY_S
    """After which a quiet thread is unloaded."""
    memory: MemorySettings = field(default_factory=MemorySettings)
    counts_use: bool = False


async def read_first_settings(configuration: Configuration) -> FirstSettings:
    """Read what is read once.

    A configuration that cannot be used is only logged, and the defaults hold: every request that
    needs it gets the error.
    """
    try:
        config = await configuration.read()
        for warning in requirements_of(config).warnings:
            logger.warning("%s", warning)
        delay_s = config.view().integer("thread_unload_delay_secs")
        return FirstSettings(
            unload_delay_s=UNLOAD_DELAY_S if delay_s is None else float(delay_s),
            memory=read_memory_settings(config),
            counts_use=counts_use(config),
        )
    except ConfigError as exc:
        logger.warning("the configuration cannot be used: %s", exc)
        return FirstSettings()
