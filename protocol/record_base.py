"""What every line of a rollout has."""

from protocol.model import WireModel

ROLLOUT_VERSION = 1


class RecordBase(WireModel):
    """What every line has."""

    v: int = ROLLOUT_VERSION
    at_ms: int
    """Unix milliseconds of writing."""
