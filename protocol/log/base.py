"""What every line of a rollout has."""

from protocol.model import Int64, WireModel

ROLLOUT_VERSION = 1


class RecordBase(WireModel):
    """What every line has."""

    v: int = ROLLOUT_VERSION
    at_ms: Int64
    """Unix milliseconds of writing."""
