"""The base of every wire type, and the mark of what needs the experimental opt-in."""

from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

Json: TypeAlias = Any
"""A JSON value of any shape: carried, not interpreted."""

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object of any shape: carried, not interpreted."""

UInt32: TypeAlias = Annotated[int, Field(ge=0, lt=2**32)]
"""A count, as the peers bound it."""

EXPERIMENTAL = "x-experimental"


class WireModel(BaseModel):
    """One JSON object of the wire: camelCase outside, snake_case inside.

    Members that this version does not know are ignored, as the peers do it. Nothing is coerced:
    `"5"` is not a number and `1` is not a boolean. Nulls are kept when rendering; the few members
    that vanish instead say so with `absent_if_none`.
    Source: docs/wire.md, "Values".
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        strict=True,
        extra="ignore",
    )


def experimental(default: Any = None, **kwargs: Any) -> Any:
    """Declare a field that only clients with `capabilities.experimentalApi` may use or see."""
    return Field(default=default, json_schema_extra={EXPERIMENTAL: True}, **kwargs)


def absent_if_none(**kwargs: Any) -> Any:
    """Declare an optional field that is left out, not null, when there is no value."""
    return Field(default=None, exclude_if=_is_none, **kwargs)


def _is_none(value: object) -> bool:
    return value is None
