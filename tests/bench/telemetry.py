"""What spans cost: nothing to speak of without a collector, some microseconds with one.

    python -m tests.bench.telemetry [--requests N]

Prints what it takes to ask whether anybody takes spans, one span that nobody takes, and one
`thread/loaded/list` over a socket in this process, without telemetry and with spans that are made
and dropped. Figures of one run depend on what else the machine does; the best of five passes is
shown.
"""

import argparse
import asyncio
import tempfile
import timeit
from contextlib import ExitStack
from pathlib import Path
from time import process_time

from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from app_server.observability.settings import TelemetrySettings
from app_server.observability.telemetry.exporting import Exporting
from app_server.observability.telemetry.spans import exported_by, is_on, span
from tests.support.harness import serve

PASSES = 5


class Dropped(SpanExporter):
    """Takes spans and keeps none."""

    def export(self, spans: object) -> SpanExportResult:
        return SpanExportResult.SUCCESS


def ask() -> None:
    is_on()


def one_span() -> None:
    with span("request", "m", None, rpc__system="jsonrpc", rpc__method="m", n=1) as work:
        work.set(x=1)


async def request_us(home: Path, requests: int, *, with_spans: bool) -> float:
    """Return the processor time of a request and its client, in microseconds."""
    with ExitStack() as stack:
        if with_spans:
            processor = SimpleSpanProcessor(Dropped())
            stack.enter_context(exported_by(Exporting(TelemetrySettings(), "0", [processor], [])))
        async with serve(home) as served, served.client() as client:
            best = float("inf")
            for _ in range(PASSES):
                began = process_time()
                for _ in range(requests):
                    await client.call("thread/loaded/list", {})
                best = min(best, process_time() - began)
    return best / requests * 1e6


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=2000)
    requests = parser.parse_args().requests
    count = 100_000
    asked_us, nothing_us = (
        min(timeit.repeat(work, number=count, repeat=PASSES)) / count * 1e6
        for work in (ask, one_span)
    )
    with tempfile.TemporaryDirectory() as folder:
        off_us = asyncio.run(request_us(Path(folder) / "off", requests, with_spans=False))
        on_us = asyncio.run(request_us(Path(folder) / "on", requests, with_spans=True))
    print(f"to ask whether anybody does  {asked_us:8.3f} µs (once a request)")
    print(f"a span that nobody takes     {nothing_us:8.2f} µs (some a turn)")
    print(f"a request without telemetry  {off_us:8.1f} µs ({asked_us / off_us:.3%} of it for that)")
    print(f"a request with spans         {on_us:8.1f} µs")


if __name__ == "__main__":
    main()
