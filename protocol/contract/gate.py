"""The experimental gate: what a client used without the opt-in, and what it must not be shown.

The marks sit on fields (`experimental()`) and on variants (`experimental_as`) in the types; this
module reads them. A field counts as used when it is present and neither null nor false.
Source: docs/wire.md, "Experimental members".
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, TypeGuard, get_args

from typing_extensions import TypeAliasType

from protocol.model import EXPERIMENTAL, Variant, WireModel


def used_experimental(method: str, params: WireModel) -> str | None:
    """Name the first experimental member that `params` uses, or None.

    The name is `<method>.<member>` for a member, at any depth, and the variant's own name
    (`askForApproval.granular`) for a variant.
    """
    if is_experimental_variant(params):
        return params.experimental_as
    marked = _marked_fields(type(params))
    for name in type(params).model_fields:
        value = getattr(params, name)
        if name in marked and _is_used(value):
            return f"{method}.{_wire_name(params, name)}"
        for inner in _models_in(value):
            if found := used_experimental(method, inner):
                return found
    return None


def is_experimental_variant(value: WireModel) -> TypeGuard[Variant]:
    """Whether the value as a whole is for clients with the opt-in alone."""
    return isinstance(value, Variant) and value.experimental_as is not None


@cache
def stable_exclude(model: type[WireModel]) -> dict[str, Any] | None:
    """Tell which members of a message a client without the opt-in does not get.

    The answer has the shape of pydantic's `exclude`; None when everything is stable. A variant
    cannot be left out, since nothing would stand in its place: it renders its own stable form.
    """
    marked = _marked_fields(model)
    exclude: dict[str, Any] = dict.fromkeys(marked, True)
    for name, field in model.model_fields.items():
        inner: dict[str, Any] = {}
        for candidate in models_of(field.annotation):
            inner |= stable_exclude(candidate) or {}
        if name not in exclude and inner:
            exclude[name] = {"__all__": inner} if _is_collection(field.annotation) else inner
    return exclude or None


@cache
def has_stable_form(model: type[WireModel]) -> bool:
    """Whether clients without the opt-in may be sent other text of a message than those with it."""
    if _marked_fields(model) or (issubclass(model, Variant) and model.experimental_as is not None):
        return True
    fields = model.model_fields.values()
    return any(has_stable_form(one) for field in fields for one in models_of(field.annotation))


def models_of(annotation: Any) -> Iterator[type[WireModel]]:
    """List the wire types that a value of an annotated field can hold."""
    if isinstance(annotation, TypeAliasType):
        yield from models_of(annotation.__value__)
    elif isinstance(annotation, type) and issubclass(annotation, WireModel):
        yield annotation
    for argument in get_args(annotation):
        yield from models_of(argument)


@cache
def _marked_fields(model: type[WireModel]) -> frozenset[str]:
    return frozenset(
        name
        for name, field in model.model_fields.items()
        if isinstance(field.json_schema_extra, dict) and field.json_schema_extra.get(EXPERIMENTAL)
    )


def _is_used(value: object) -> bool:
    return value is not None and value is not False


def _wire_name(params: WireModel, name: str) -> str:
    return type(params).model_fields[name].alias or name


def _models_in(value: object) -> Iterator[WireModel]:
    if isinstance(value, WireModel):
        yield value
    elif isinstance(value, list):
        for element in value:
            yield from _models_in(element)
    elif isinstance(value, dict):
        for element in value.values():
            yield from _models_in(element)


def _is_collection(annotation: Any) -> bool:
    return any(origin in (list, dict) for origin in _origins(annotation))


def _origins(annotation: Any) -> Iterator[Any]:
    yield getattr(annotation, "__origin__", None)
    for argument in get_args(annotation):
        if not isinstance(argument, type):
            yield from _origins(argument)
