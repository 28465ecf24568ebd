"""The experimental gate: what a client used without the opt-in, and what it must not be shown.

The marks sit on the fields (`experimental()` in protocol/model.py); this module reads them.
A field counts as used when it is present and neither null nor false.
Source: docs/wire.md, "Experimental members".
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, get_args

from protocol.model import EXPERIMENTAL, WireModel


def used_experimental(method: str, params: WireModel) -> str | None:
    """Name the first experimental member that `params` uses, or None.

    The name is `<method>.<member>` for a member of the params object and the variant's own name
    (`askForApproval.granular`) for a variant further in.
    """
    for name, mark in _marked_fields(type(params)):
        if _is_used(getattr(params, name)):
            return mark if isinstance(mark, str) else f"{method}.{_wire_name(params, name)}"
    for name in type(params).model_fields:
        for inner in _models_in(getattr(params, name)):
            found = used_experimental(method, inner)
            if found is not None:
                return found
    return None


@cache
def stable_exclude(model: type[WireModel]) -> dict[str, Any] | None:
    """Tell which members of a message a client without the opt-in does not get.

    The answer has the shape of pydantic's `exclude`; None when everything is stable. Variants stay:
    leaving one out would leave a value that is none of its type.
    """
    exclude: dict[str, Any] = {name: True for name, mark in _marked_fields(model) if mark is True}
    for name, field in model.model_fields.items():
        inner: dict[str, Any] = {}
        for candidate in _models_of(field.annotation):
            inner |= stable_exclude(candidate) or {}
        if name not in exclude and inner:
            exclude[name] = {"__all__": inner} if _is_collection(field.annotation) else inner
    return exclude or None


@cache
def _marked_fields(model: type[WireModel]) -> tuple[tuple[str, object], ...]:
    marks = []
    for name, field in model.model_fields.items():
        extra = field.json_schema_extra
        if isinstance(extra, dict) and extra.get(EXPERIMENTAL):
            marks.append((name, extra[EXPERIMENTAL]))
    return tuple(marks)


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


def _models_of(annotation: Any) -> Iterator[type[WireModel]]:
    if isinstance(annotation, type) and issubclass(annotation, WireModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_of(argument)


def _is_collection(annotation: Any) -> bool:
    return any(origin is list for origin in _origins(annotation))


def _origins(annotation: Any) -> Iterator[Any]:
    yield getattr(annotation, "__origin__", None)
    for argument in get_args(annotation):
        if not isinstance(argument, type):
            yield from _origins(argument)
