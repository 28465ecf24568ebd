"""A real server and a collector on loopback; settings, and those that make no sense."""

import http.server
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from app_server.config.values import Config, ConfigError
from app_server.observability.settings import (
    MAX_ATTRIBUTES,
    Collector,
    TelemetrySettings,
    read_telemetry_settings,
)
from app_server.observability.telemetry import exporting
from tests.support.harness import claim, serve, write_config
from tests.support.model import ScriptedModel, says
from tests.support.processes import Running, running

SECRET = "hunter2-Zx9_qwerty"


def settings_of(text: str) -> TelemetrySettings:
    return read_telemetry_settings(Config(tomllib.loads(text), Path("/c.toml"), text))


def test_the_settings_are_those_of_codex() -> None:
    text = """
[otel]
environment = "prod"
metrics_exporter = "none"
span_attributes = { team = "a" }
[otel.trace_exporter.otlp-http]
endpoint = "http://c/v1/traces"
protocol = "binary"
headers = { k = "v" }
"""
    assert settings_of(text) == TelemetrySettings(
        Collector("http://c/v1/traces", {"k": "v"}), None, "prod", {"team": "a"}
    )
    assert not settings_of("").is_on


@pytest.mark.parametrize(
    ("otel", "rule"),
    [
        ('trace_exporter = "statsig"', "unknown variant `statsig`, expected `none`"),
        ("trace_exporter = 5", "invalid type: integer, expected a map"),
        (
            'trace_exporter = { otlp-grpc = { endpoint = "http://c" } }',
            "unknown variant `otlp-grpc`, expected `otlp-http`",
        ),
        (
            'metrics_exporter = { otlp-http = { endpoint = "c:4318" } }',
            "must be a URL that begins with http:// or https://",
        ),
        (
            'trace_exporter = { otlp-http = { endpoint = "http://[c" } }',
            "must be a URL that begins with http:// or https://",
        ),
        (
            'trace_exporter = { otlp-http = { endpoint = "http://c", protocol = "json" } }',
            "unknown variant `json`, expected `binary`",
        ),
        (
            "span_attributes = {"
            + ", ".join(f'a{number} = "x"' for number in range(MAX_ATTRIBUTES + 1))
            + "}",
            f"must have at most {MAX_ATTRIBUTES} members",
        ),
    ],
)
def test_a_wrong_setting_names_its_place_and_the_rule(otel: str, rule: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings_of(f"[otel]\n{otel}\n")
    assert str(caught.value).startswith("/c.toml:")
    assert str(caught.value).endswith(rule)


@contextmanager
def collector() -> Iterator[tuple[str, dict[str, list[bytes]], list[str | None]]]:
    """Serve OTLP over HTTP; gives the URL, the bodies by path, and the keys that were sent."""
    bodies: dict[str, list[bytes]] = {}
    keys: list[str | None] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            bodies.setdefault(self.path, []).append(body)
            keys.append(self.headers["x-key"])
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", bodies, keys
        finally:
            server.shutdown()
            thread.join()


async def end(server: Running) -> str:
    """End a server; returns what it logged."""
    server.process.terminate()
    assert server.process.stderr is not None
    with anyio.fail_after(60):
        return (await server.process.stderr.read()).decode()


@pytest.mark.process
@claim("telemetry:export")
async def test_a_collector_gets_the_spans_and_metrics_of_a_server(tmp_path: Path) -> None:
    model = ScriptedModel()
    async with model.serve():
        with collector() as (url, bodies, keys):
            exporter = (
                f'otlp-http = {{ endpoint = "{url}/PATH", headers = {{ x-key = "{SECRET}" }} }}'
            )
            config = (
                f"[otel]\ntrace_exporter = {{ {exporter.replace('PATH', 'v1/traces')} }}\n"
                f"metrics_exporter = {{ {exporter.replace('PATH', 'v1/metrics')} }}\n"
            )
            write_config(tmp_path, model.url, config)
            async with running(tmp_path) as server:
                async with server.client() as client:
                    thread_id = await client.start_thread()
                    model.scripts.append(says(SECRET))
                    await client.turn(thread_id, SECRET)
                log = await end(server)
    assert log == ""
    assert set(keys) == {SECRET}
    traces = b"".join(bodies["/v1/traces"])
    assert SECRET.encode() not in traces
    names = {
        span.name
        for body in bodies["/v1/traces"]
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    }
    assert {"initialize", "thread/start", "turn/start", "turn", "chat scripted"} <= names
    metrics = {
        metric.name
        for body in bodies["/v1/metrics"]
        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    assert {"rpc.server.call.duration", "gen_ai.client.token.usage"} <= metrics


@pytest.mark.postgresql
@pytest.mark.process
@claim("telemetry:export")
async def test_a_collector_gets_the_figures_of_a_database(
    tmp_path: Path, database_url: str
) -> None:
    async with ScriptedModel().serve() as model:
        with collector() as (url, bodies, _):
            exporter = f'{{ otlp-http = {{ endpoint = "{url}/v1/metrics" }} }}'
            write_config(tmp_path, model.url, f"[otel]\nmetrics_exporter = {exporter}\n")
            async with running(tmp_path, options=["--store", database_url]) as server:
                async with server.client() as client:
                    await client.turn(await client.start_thread(), "hello")
                    gauges = (await client.call("server/diagnostics", {}))["gauges"]
                log = await end(server)
    assert log == ""
    (resource,) = ExportMetricsServiceRequest.FromString(bodies["/v1/metrics"][-1]).resource_metrics
    assert "service.instance.id" in {one.key for one in resource.resource.attributes}
    sent = {
        metric.name: metric
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name.startswith("appserver.store.")
    }
    shown = {gauge["name"]: gauge["value"] for gauge in gauges}
    assert {f"appserver.{name}" for name in shown if name.startswith("store.")} == sent.keys()
    assert {name for name, metric in sent.items() if metric.HasField("sum")} == {
        "appserver.store.appends",
        "appserver.store.appends.fenced",
        "appserver.store.pool.waited",
        "appserver.store.pool.waited_ms",
        "appserver.store.threads.taken_over",
    }
    assert sent["appserver.store.appends"].sum.is_monotonic
    (appends,) = sent["appserver.store.appends"].sum.data_points
    assert appends.as_int >= shown["store.appends"] > 0
    slowest = sent["appserver.store.appends.synced_p99_us"]
    assert (slowest.unit, slowest.gauge.data_points[0].as_int > 0) == ("us", True)
    assert 0 < sent["appserver.store.lease.left_ms"].gauge.data_points[0].as_int <= 10_000


@pytest.mark.slow
@pytest.mark.process
@claim("telemetry:export")
async def test_a_collector_that_is_not_there_holds_up_nothing(tmp_path: Path) -> None:
    model = ScriptedModel()
    async with model.serve():
        endpoint = f"http://ann:{SECRET}@127.0.0.1:9/v1/traces"
        config = f'[otel]\ntrace_exporter = {{ otlp-http = {{ endpoint = "{endpoint}" }} }}\n'
        write_config(tmp_path, model.url, config)
        async with running(tmp_path) as server:
            async with server.client() as client:
                thread_id = await client.start_thread()
                model.scripts.append(says("ok"))
                assert (await client.turn(thread_id, "x"))["status"] == "completed"
            log = await end(server)
    assert SECRET not in log


@claim("telemetry:export")
async def test_turns_end_where_nobody_collects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(exporting, "EXPORT_S", 0.05)
    endpoint = f"http://ann:{SECRET}@127.0.0.1:9/v1/traces"
    config = f'[otel]\ntrace_exporter = {{ otlp-http = {{ endpoint = "{endpoint}" }} }}\n'
    async with serve(tmp_path, config=config) as served, served.client() as client:
        thread_id = await client.start_thread()
        assert (await client.turn(thread_id, "x"))["status"] == "completed"
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    ("variable", "value"),
    [("OTEL_BSP_SCHEDULE_DELAY", "-1"), ("OTEL_METRICS_EXEMPLAR_FILTER", "nothing")],
)
async def test_a_variable_that_makes_no_sense_keeps_no_server_from_starting(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    variable: str,
    value: str,
) -> None:
    monkeypatch.setenv(variable, value)
    config = '[otel]\ntrace_exporter = { otlp-http = { endpoint = "http://127.0.0.1:9/" } }\n'
    async with serve(tmp_path, config=config) as served, served.client() as client:
        assert await client.call("thread/loaded/list", {}) == {"data": [], "nextCursor": None}
    (warning,) = [one for one in caplog.messages if "collector" in one]
    assert warning.startswith("nothing is sent to a collector: OpenTelemetry cannot be set up: ")
