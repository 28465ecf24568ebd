"""What every line of a log has."""

from collections.abc import Collection

from pydantic_core import from_json

from protocol.model import Int64, WireModel

ROLLOUT_VERSION = 1


class RecordBase(WireModel):
    """What every line has."""

    v: int = ROLLOUT_VERSION
    at_ms: Int64
    """Unix milliseconds of writing."""


def is_of_newer(line: bytes | str, types: Collection[str]) -> bool:
    """Whether a line is whole, but of a newer version, or of a kind that is not one of `types`."""
    try:
        members = from_json(line)
    except ValueError:
        return False
    if not isinstance(members, dict) or not isinstance(members.get("type"), str):
        return False
    version = members.get("v")
    return (isinstance(version, int) and version > ROLLOUT_VERSION) or members["type"] not in types
