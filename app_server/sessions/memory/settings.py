"""Memory bounds of threads, from config.toml. Source: docs/config.md, "Memory"."""

from dataclasses import dataclass, field

from app_server.config.values import Config, ConfigView
from app_server.rpc.hub.replay_buffer import ReplayLimits

MIB = 1024 * 1024
DEFAULT_BUDGET = 256 * MIB


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """Memory budget of all loaded threads, and bounds of each one's replay buffer."""

    budget_bytes: int = DEFAULT_BUDGET
    stream: ReplayLimits = field(default_factory=ReplayLimits)


def read_memory_settings(config: Config) -> MemorySettings:
    """Read the keys that say how much may be kept.

    Raises:
        ConfigError: a value is not an integer within its bounds.
    """
    view, stream = config.view(), ReplayLimits()
    return MemorySettings(
        budget_bytes=_integer(view, "memory_budget_bytes", DEFAULT_BUDGET, MIB, 1 << 40),
        stream=ReplayLimits(
            # More than a client's queue takes could not be sent again at once.
            max_events=_integer(view, "thread_events_kept", stream.max_events, 256, 4096),
            max_bytes=_integer(
                view, "thread_events_kept_bytes", stream.max_bytes, 64 * 1024, 8 * MIB
            ),
        ),
    )


def _integer(view: ConfigView, key: str, default: int, least: int, most: int) -> int:
    value = view.integer(key)
    if value is None:
        return default
    if not least <= value <= most:
        raise view.error(f"{value} is not between {least} and {most}", key)
    return value
