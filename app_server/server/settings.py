"""What a server is started with, and what it reads of its configuration once."""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app_server.config.effective import Configuration
from app_server.config.requirements import SYSTEM_REQUIREMENTS, requirements_of
from app_server.config.values import ConfigError
from app_server.memory.settings import MemorySettings, read_memory_settings
from app_server.rpc.connection import ConnectionLimits
from app_server.transport.address import Address
from app_server.transport.websocket import WebSocketLimits

logger = logging.getLogger(__name__)

VERSION = "0.1.0"
"""This package's version; tests compare it with pyproject.toml."""

UNLOAD_DELAY_S = 1800.0
DRAIN_S = 30.0


def _user_home() -> Path:
    # Unlike `Path.home` this fails for no user.
    return Path(os.path.expanduser("~"))  # noqa: PTH111


@dataclass(frozen=True, slots=True)
class Settings:
    """What a server is started with."""

    home: Path
    listen: Sequence[Address]
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Of config.toml, from the command line."""
    requirements: Path = SYSTEM_REQUIREMENTS
    """What an administrator demands; only tests have another one."""
    cwd: Path = field(default_factory=Path.cwd)
    user_home: Path = field(default_factory=_user_home)
    """The home folder of the user; only tests have another one."""
    drain_s: float = DRAIN_S
    """How long running turns may go on after the first signal to stop."""
    connection: ConnectionLimits = field(default_factory=ConnectionLimits)
    websocket: WebSocketLimits = field(default_factory=WebSocketLimits)


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
