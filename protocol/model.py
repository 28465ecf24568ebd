"""The base of every wire type, and the marks that the schema and the gate read.

Knows: how values look on the wire. Does not know: any method or message.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self, TypeAlias, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

Json: TypeAlias = Any
"""A JSON value of any shape: carried, not interpreted."""

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object of any shape: carried, not interpreted."""

EXPERIMENTAL = "x-experimental"
"""Marks what needs the opt-in: `true` on a field."""
EXTENSION = "x-extension"
"""Marks what the reference does not have."""
ABSENT = "x-absent"
"""Marks what is left out instead of null; it does not leave this package."""

STABLE: Mapping[str, bool] = {"stable": True}
"""The serialization context of messages to clients without the opt-in."""

REQUEST: Mapping[str, bool] = {"request": True}
"""The validation context of what clients send."""


class _Integer:
    """The range of an integer, in JSON Schema the `format` that peers know it by."""

    def __init__(self, name: str, minimum: int | None = None) -> None:
        self._schema: JsonObject = {"type": "integer", "format": name}
        if minimum is not None:
            self._schema["minimum"] = minimum

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return dict(self._schema)


def _signed(bits: int) -> Any:
    return Field(ge=-(2 ** (bits - 1)), lt=2 ** (bits - 1))


def _unsigned(bits: int) -> Any:
    return Field(ge=0, lt=2**bits)


Int32: TypeAlias = Annotated[int, _signed(32), _Integer("int32")]
Int64: TypeAlias = Annotated[int, _signed(64), _Integer("int64")]
UInt16: TypeAlias = Annotated[int, _unsigned(16), _Integer("uint16", 0)]
UInt32: TypeAlias = Annotated[int, _unsigned(32), _Integer("uint32", 0)]
UInt64: TypeAlias = Annotated[int, _unsigned(64), _Integer("uint64", 0)]
UInt: TypeAlias = Annotated[int, _unsigned(64), _Integer("uint", 0)]
"""A count or an index: as wide as a machine word."""
PositiveUInt: TypeAlias = Annotated[int, Field(ge=1, lt=2**64), _Integer("uint", 1)]

NonEmptyStr: TypeAlias = Annotated[str, Field(min_length=1)]


class WireModel(BaseModel):
    """One JSON object of the wire: camelCase outside, snake_case inside.

    Members that this version does not know are ignored, as the peers do it. Nothing is coerced:
    `"5"` is not a number and `1` is not a boolean. Nulls are kept when rendering; the few members
    that vanish instead say so with `absent_if_none`. Validators are built at first use: most
    processes use few of the types.
    Source: docs/wire.md, "Values".
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        strict=True,
        extra="ignore",
        defer_build=True,
    )


class SnakeModel(WireModel):
    """A JSON object whose members are snake_case on the wire too."""

    model_config = ConfigDict(alias_generator=None)


class Variant(WireModel):
    """An object without a name of its own on the wire: one alternative of a union, mostly.

    In the schema it stands where it is used, titled with its class name.
    """

    experimental_as: ClassVar[str | None] = None
    """The name under which the gate refuses it to clients without the opt-in."""
    needs_extension: ClassVar[str | None] = None
    """The extension that a client must have declared to be asked this."""


class SnakeVariant(Variant):
    """A Variant whose members are snake_case on the wire too."""

    model_config = ConfigDict(alias_generator=None)


class Sparse(WireModel):
    """A JSON object that is written as it was said: nulls that nobody set stay out."""

    @model_serializer(mode="wrap")
    def _render_what_was_set(self, render: SerializerFunctionWrapHandler) -> JsonObject:
        fields = type(self).model_fields
        was_set = {name for field in self.model_fields_set for name in (field, fields[field].alias)}
        return {k: v for k, v in render(self).items() if v is not None or k in was_set}


class OneOf(Variant, Sparse):
    """A Variant that needs one of several members."""

    one_of: ClassVar[tuple[str, ...]] = ()
    """Wire names; each stands for a string."""

    @model_validator(mode="after")
    def _has_one(self) -> Self:
        names = {field.alias or name: name for name, field in type(self).model_fields.items()}
        if all(getattr(self, names[member]) is None for member in self.one_of):
            raise ValueError(f"needs one of {', '.join(self.one_of)}")
        return self

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler.resolve_ref_schema(handler(core_schema))
        shared = {k: v for k, v in schema["properties"].items() if k not in cls.one_of}
        alternatives = [
            {"type": "object", "properties": {member: {"type": "string"}}, "required": [member]}
            for member in cls.one_of
        ]
        return {**schema, "properties": shared, "anyOf": alternatives}


class SnakeOneOf(OneOf):
    """A OneOf whose members are snake_case on the wire too."""

    model_config = ConfigDict(alias_generator=None)


class UnknownVariant(WireModel, extra="allow"):
    """An alternative that a newer peer has and we do not: kept whole, in `model_extra`.

    The members that tell alternatives apart are None here, whatever was sent under their names:
    so type checkers narrow an open union by them as they do a closed one.
    """

    type: ClassVar[None] = None
    mode: ClassVar[None] = None
    handler_type: ClassVar[None] = None


T = TypeVar("T")


class _Open:
    """Tries the known values first, and leaves the fallback out of the schema."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return {**handler(source), "mode": "left_to_right"}

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        known = core_schema["choices"][:-1]
        return handler(known[0] if len(known) == 1 else {**core_schema, "choices": known})


OpenEnum: TypeAlias = Annotated[T | str, _Open()]
"""Words that only the server says: one that a newer server adds is kept, not refused.

Two of these with the same words must have them in the same order: `typing` takes them for one.
"""

OpenUnion: TypeAlias = Annotated[T | UnknownVariant, _Open()]
"""Alternatives that only the server sends: one that a newer server adds is kept, not refused."""


def experimental(
    default: Any = None, *, absent: bool = False, extension: bool = False, **kwargs: Any
) -> Any:
    """Declare a field that only clients with `capabilities.experimentalApi` may use or see.

    `absent` leaves it out when it is None; `extension` marks what the reference does not have.
    """
    marks: JsonObject = {EXPERIMENTAL: True} | ({EXTENSION: True} if extension else {})
    return _marked(marks, default, absent=absent, **kwargs)


def absent_if_none(**kwargs: Any) -> Any:
    """Declare an optional field that is left out, not null, when there is no value."""
    return _marked({}, absent=True, **kwargs)


def absent_if_unset() -> Any:
    """Declare an optional field of a Sparse model."""
    return Field(default=None, json_schema_extra={ABSENT: True})


def _marked(marks: JsonObject, default: Any = None, *, absent: bool, **kwargs: Any) -> Any:
    if absent:
        marks = {**marks, ABSENT: True}
        kwargs["exclude_if"] = _is_none
    return Field(default=default, json_schema_extra=marks, **kwargs)


def _is_none(value: object) -> bool:
    return value is None
