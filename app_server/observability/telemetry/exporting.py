"""OpenTelemetry: spans and how long they took, to a collector. Imported where that is configured.

Spans and metrics go out on threads of the SDK. At most 2,048 spans wait; what comes then is
dropped. Names and attributes are those of OpenTelemetry's semantic conventions where there are any.
Source: https://opentelemetry.io/docs/specs/semconv/ (rpc, gen-ai, mcp).
"""

import asyncio
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any, Literal, TypeAlias

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import CallbackOptions, Histogram, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from app_server.observability.settings import TelemetrySettings

SpanKind: TypeAlias = Literal["request", "turn", "model", "tool", "mcp"]

Attribute: TypeAlias = str | int | bool
"""None leaves an attribute out."""

MAX_WAITING = 2048
"""Spans that wait to be sent."""
EXPORT_S = 10.0
"""For one request to the collector."""
INTERVAL_S = 60.0
"""Between two exports of metrics."""
FLUSH_S = 3.0
"""At the end, for what waits."""
MAX_VALUE_CHARS = 256
"""Of an attribute; what is longer is cut."""
MAX_TRACE_CHARS = 1024
"""Of each part of a context that a client sends; longer ones are not followed."""

KINDS: Mapping[SpanKind, trace.SpanKind] = {
    "request": trace.SpanKind.SERVER,
    "turn": trace.SpanKind.INTERNAL,
    "model": trace.SpanKind.CLIENT,
    "tool": trace.SpanKind.INTERNAL,
    "mcp": trace.SpanKind.CLIENT,
}
DURATIONS: Mapping[SpanKind, str] = {
    "request": "rpc.server.call.duration",
    "turn": "appserver.turn.duration",
    "model": "gen_ai.client.operation.duration",
    "tool": "gen_ai.execute_tool.duration",
    "mcp": "mcp.client.operation.duration",
}
COUNTED = frozenset(
    {
        "appserver.mcp.server",
        "appserver.turn.end",
        "error.type",
        "gen_ai.operation.name",
        "gen_ai.provider.name",
        "gen_ai.request.model",
        "gen_ai.tool.name",
        "mcp.method.name",
        "rpc.method",
        "rpc.system",
    }
)
"""Attributes of spans that metrics have too: those of which there are few values."""
TOKENS = {"gen_ai.usage.input_tokens": "input", "gen_ai.usage.output_tokens": "output"}
STORE_TOTALS = frozenset(
    {
        "store.appends",
        "store.appends.fenced",
        "store.threads.taken_over",
        "store.pool.waited",
        "store.pool.waited_ms",
    }
)
"""Figures of a store that are sums since the start; the others are how it is now."""


def make_exporting(settings: TelemetrySettings, version: str) -> "Exporting":
    """Make the exporters of spans and metrics; blocks for some milliseconds."""
    processors: list[SpanProcessor] = []
    readers: list[MetricReader] = []
    if settings.traces is not None:
        traces = OTLPSpanExporter(
            settings.traces.endpoint, headers=dict(settings.traces.headers), timeout=EXPORT_S
        )
        processors.append(BatchSpanProcessor(traces, max_queue_size=MAX_WAITING))
    if settings.metrics is not None:
        metrics = OTLPMetricExporter(
            settings.metrics.endpoint, headers=dict(settings.metrics.headers), timeout=EXPORT_S
        )
        readers.append(PeriodicExportingMetricReader(metrics, INTERVAL_S * 1000, EXPORT_S * 1000))
    return Exporting(settings, version, processors, readers)


class Exporting:
    """The traces and metrics of one process."""

    def __init__(
        self,
        settings: TelemetrySettings,
        version: str,
        processors: Sequence[SpanProcessor],
        readers: Sequence[MetricReader],
    ) -> None:
        """Give spans to `processors` and metrics to `readers`; without any they go nowhere."""
        resource = Resource.create(
            {
                "service.name": "app-server",
                "service.version": version,
                # Servers of a group send to one collector.
                "service.instance.id": str(uuid.uuid4()),
                "deployment.environment.name": settings.environment,
            }
        )
        limits = SpanLimits(max_span_attribute_length=MAX_VALUE_CHARS)
        self._traces = TracerProvider(resource=resource, span_limits=limits, shutdown_on_exit=False)
        self._sends_traces = bool(processors)
        for processor in processors:
            self._traces.add_span_processor(processor)
        self._tracer = self._traces.get_tracer("app_server", version)
        self._metrics = MeterProvider(readers, resource=resource, shutdown_on_exit=False)
        self._meter = self._metrics.get_meter("app_server", version)
        self._durations: dict[SpanKind, Histogram] = {
            kind: self._meter.create_histogram(name, "s") for kind, name in DURATIONS.items()
        }
        self._tokens = self._meter.create_histogram("gen_ai.client.token.usage", "{token}")
        self._attributes = dict(settings.attributes)
        self._w3c = TraceContextTextMapPropagator()

    def observe(self, read: Callable[[], Mapping[str, int]]) -> None:
        """Send figures of a store as they are at each export.

        `read` returns them, always the same names; it is called on a thread of the SDK.
        Source: docs/operations.md, "Traces and metrics".
        """

        def observed(figure: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
            return lambda _: [Observation(read()[figure])]

        for figure in read():
            unit = {"us": "us", "ms": "ms"}.get(figure.rpartition("_")[2], "1")
            name, callbacks = f"appserver.{figure}", [observed(figure)]
            if figure in STORE_TOTALS:
                self._meter.create_observable_counter(name, callbacks, unit)
            else:
                self._meter.create_observable_gauge(name, callbacks, unit)

    @contextmanager
    def span(
        self, kind: SpanKind, name: str, sent: Any, attributes: dict[str, Attribute | None]
    ) -> Iterator["_Work"]:
        """Begin a span; `sent` is a request's W3C context as it came, or None."""
        work = _Work(self._attributes, attributes)
        began_s = perf_counter()
        span = self._tracer.start_span(
            name, self._parent(sent), KINDS[kind], attributes=work.attributes
        )
        token = otel_context.attach(trace.set_span_in_context(span))
        try:
            yield work
        except asyncio.CancelledError:
            work.set(appserver__cancelled=True)
            raise
        except BaseException as exc:
            if work.failure is None:
                work.fail(type(exc).__name__)
            raise
        finally:
            otel_context.detach(token)
            span.set_attributes(work.attributes)
            if work.failure is not None:
                span.set_status(trace.StatusCode.ERROR, work.failure)
            span.end()
            self._measure(kind, work, perf_counter() - began_s)

    def _parent(self, sent: Any) -> otel_context.Context | None:
        """Read the W3C context of a request; None means the work that goes on now."""
        if not isinstance(sent, dict):
            return None
        carrier = {
            name: value
            for name in ("traceparent", "tracestate")
            if isinstance(value := sent.get(name), str) and len(value) <= MAX_TRACE_CHARS
        }
        return self._w3c.extract(carrier) if carrier else None

    def _measure(self, kind: SpanKind, work: "_Work", seconds: float) -> None:
        few = {name: value for name, value in work.attributes.items() if name in COUNTED}
        self._durations[kind].record(seconds, few)
        for name, token_type in TOKENS.items():
            if name in work.attributes:
                self._tokens.record(
                    int(work.attributes[name]), {**few, "gen_ai.token.type": token_type}
                )

    @contextmanager
    def without_span(self) -> Iterator[None]:
        """Detach the block from the current span."""
        token = otel_context.attach(otel_context.Context())
        try:
            yield
        finally:
            otel_context.detach(token)

    def trace_context(self) -> Mapping[str, str]:
        """Return the W3C context of the span that goes on; see `trace_context`."""
        carrier: dict[str, str] = {}
        if self._sends_traces:
            self._w3c.inject(carrier)
        return carrier

    def close(self) -> None:
        """Flush for at most FLUSH_S; blocks."""
        # The SDK tries a collector that is not there again and again, and cannot be told to stop.
        thread = threading.Thread(target=self._close, name="telemetry", daemon=True)
        thread.start()
        thread.join(FLUSH_S)

    def _close(self) -> None:
        self._traces.shutdown()
        self._metrics.shutdown()


class _Work:
    """Attributes and failure of a span while it lasts."""

    def __init__(
        self, common: Mapping[str, str], attributes: Mapping[str, Attribute | None]
    ) -> None:
        self.attributes: dict[str, Attribute] = dict(common)
        self.failure: str | None = None
        self.set(**attributes)

    def set(self, **attributes: Attribute | None) -> None:
        for name, value in attributes.items():
            if value is not None:
                self.attributes[name.replace("__", ".")] = value

    def fail(self, kind: str) -> None:
        self.failure = kind
        self.attributes["error.type"] = kind
