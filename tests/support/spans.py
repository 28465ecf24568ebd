"""Spans and metrics of a server in a test, kept where the test can read them."""

from collections.abc import Mapping
from typing import Any

from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from app_server.observability.settings import TelemetrySettings
from app_server.observability.telemetry.exporting import Exporting

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
SENT = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=1"}


class Collected:
    """Telemetry that is kept instead of sent."""

    def __init__(self, settings: TelemetrySettings | None = None, *, traces: bool = True) -> None:
        self._spans = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.exporting = Exporting(
            settings or TelemetrySettings(environment="test"),
            "1.2.3",
            [SimpleSpanProcessor(self._spans)] if traces else [],
            [self._reader],
        )

    @property
    def spans(self) -> list[ReadableSpan]:
        """In the order in which they began."""
        return sorted(self._spans.get_finished_spans(), key=lambda one: one.start_time or 0)

    def named(self, name: str) -> ReadableSpan:
        (found,) = [one for one in self.spans if one.name == name]
        return found

    def metrics(self) -> dict[str, list[Any]]:
        """Points by the name of the metric."""
        data = self._reader.get_metrics_data()
        assert data is not None
        return {
            metric.name: list(metric.data.data_points)
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


def parent_of(one: ReadableSpan) -> str | None:
    return None if one.parent is None else f"{one.parent.span_id:016x}"


def id_of(one: ReadableSpan) -> str:
    assert one.context is not None
    return f"{one.context.span_id:016x}"


def trace_of(one: ReadableSpan) -> str:
    assert one.context is not None
    return f"{one.context.trace_id:032x}"


def attributes_of(one: ReadableSpan) -> Mapping[str, Any]:
    return dict(one.attributes or {})
