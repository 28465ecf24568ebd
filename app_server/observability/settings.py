"""Settings of counts of use and of telemetry: `[analytics]` and `[otel]` of config.toml.

Source: docs/operations.md, "Counts of use", "Traces and metrics".
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from app_server.config.values import Config, ConfigView


def counts_use(config: Config) -> bool:
    """Whether the user has switched counts of use on.

    Raises:
        ConfigError: the value has the wrong type.
    """
    return config.view().at("analytics").boolean("enabled", default=False)


MAX_ATTRIBUTES = 32


@dataclass(frozen=True, slots=True)
class Collector:
    """Collector of telemetry: OTLP over HTTP, as protobuf."""

    endpoint: str
    """The whole URL, such as `http://127.0.0.1:4318/v1/traces`."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class TelemetrySettings:
    """Collectors and attributes of traces and metrics; None sends no signal."""

    traces: Collector | None = None
    metrics: Collector | None = None
    environment: str = "dev"
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Of every span."""

    @property
    def is_on(self) -> bool:
        """Whether a collector is configured."""
        return self.traces is not None or self.metrics is not None


def read_telemetry_settings(config: Config) -> TelemetrySettings:
    """Read the settings.

    Raises:
        ConfigError: a value has the wrong type, or asks for what is not built.
    """
    view = config.view().at("otel")
    attributes = view.string_map("span_attributes") or {}
    if len(attributes) > MAX_ATTRIBUTES:
        raise view.error(f"must have at most {MAX_ATTRIBUTES} members", "span_attributes")
    return TelemetrySettings(
        traces=_collector(view, "trace_exporter"),
        metrics=_collector(view, "metrics_exporter"),
        environment=view.string("environment") or "dev",
        attributes=attributes,
    )


def _collector(view: ConfigView, key: str) -> Collector | None:
    if isinstance(view.table.get(key), str | None):
        view.choice(key, ["none"])
        return None
    exporter = view.at(key)
    for name in exporter.table:
        if name != "otlp-http":
            raise exporter.error(f"unknown variant `{name}`, expected `otlp-http`", name)
    http = exporter.at("otlp-http")
    endpoint = http.string("endpoint") or ""
    if not _is_web(endpoint):
        raise http.error("must be a URL that begins with http:// or https://", "endpoint")
    http.choice("protocol", ["binary"])
    return Collector(endpoint, http.string_map("headers") or {})


def _is_web(url: str) -> bool:
    try:
        return urlsplit(url).scheme in ("http", "https")
    except ValueError:
        return False
