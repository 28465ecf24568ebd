"""Spans of the server; without a collector they have no effect.

A span follows the work: what runs in it, also in tasks that it starts, has it as the parent. No
attribute holds what users, models and tools said.
Source: docs/operations.md, "Traces and metrics".
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from app_server.observability.telemetry.exporting import Attribute, Exporting, SpanKind


class Span(Protocol):
    """A piece of work that goes on."""

    def set(self, **attributes: "Attribute | None") -> None:
        """Say more of it; `__` in a name stands for a dot."""

    def fail(self, kind: str) -> None:
        """Say that it failed, by a word that is no text of an error."""


class _NoSpan(nullcontext["_NoSpan"]):
    """Span that is not exported."""

    def __init__(self) -> None:
        super().__init__(self)

    def set(self, **attributes: "Attribute | None") -> None:
        """Ignore an attribute."""

    def fail(self, kind: str) -> None:
        """Ignore a failure."""


_NO_SPAN = _NoSpan()

_telemetry: "Exporting | None" = None
"""Exporting of the process, as code that makes spans has no server at hand."""


def span(
    kind: "SpanKind", name: str, sent: Any = None, **attributes: "Attribute | None"
) -> AbstractContextManager[Span]:
    """Make a span for as long as the context lasts; `sent` is a request's W3C context as it came.

    `__` in the name of an attribute stands for a dot. What is raised in it marks it as failed, by
    its class alone; being cancelled is no failure.
    """
    if _telemetry is None:
        return _NO_SPAN
    return _telemetry.span(kind, name, sent, attributes)


def without_span() -> AbstractContextManager[object]:
    """Detach the block, and tasks that it starts, from the current span."""
    return _NO_SPAN if _telemetry is None else _telemetry.without_span()


def trace_context() -> Mapping[str, str]:
    """Return the W3C context of the span that goes on, for a request that is part of it.

    The members are `traceparent` and perhaps `tracestate`. There are none outside of spans, and
    none unless traces are sent: whoever got one would look for a span that nobody has.
    Source: https://www.w3.org/TR/trace-context/.
    """
    return {} if _telemetry is None else _telemetry.trace_context()


def is_on() -> bool:
    """Whether anybody takes spans."""
    return _telemetry is not None


@contextmanager
def exported_by(telemetry: "Exporting") -> Iterator[None]:
    """Give the spans of the process to `telemetry` while the context lasts."""
    global _telemetry
    before, _telemetry = _telemetry, telemetry
    try:
        yield
    finally:
        _telemetry = before
