"""What a server reads of its configuration once."""

import logging

from app_server.config.effective import Configuration
from app_server.config.requirements import requirements_of
from app_server.config.values import ConfigError
from app_server.memory.settings import MemorySettings, read_memory_settings

logger = logging.getLogger(__name__)

UNLOAD_DELAY_S = 1800.0


async def read_first_settings(configuration: Configuration) -> tuple[float, MemorySettings]:
    """Read what is read once: after how many seconds threads are unloaded, and memory's bounds.

    A configuration that cannot be used is only logged, and the defaults hold: every request that
    needs it gets the error.
    """
    try:
        config = await configuration.read()
        for warning in requirements_of(config).warnings:
            logger.warning("%s", warning)
        delay_s = config.view().integer("thread_unload_delay_secs")
        memory = read_memory_settings(config)
    except ConfigError as exc:
        logger.warning("the configuration cannot be used: %s", exc)
        return UNLOAD_DELAY_S, MemorySettings()
    return UNLOAD_DELAY_S if delay_s is None else float(delay_s), memory
