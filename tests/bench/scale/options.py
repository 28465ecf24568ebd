"""Input of all figures, and how durations are printed."""

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from tests.support.postgresql import Cluster


class Options(NamedTuple):
    """What a figure is measured with."""

    cluster: Cluster
    url: str
    """Of a database that has the tables, and nothing in them."""
    threads: int
    """Rows of lists."""
    records: int
    """Of the long thread."""


def durations(taken_s: Sequence[float]) -> str:
    """Render the median and the 99th percentile of durations."""
    p50, p99 = statistics.median(taken_s), statistics.quantiles(taken_s, n=100)[98]
    return f"p50 {p50 * 1000:8.2f} ms  p99 {p99 * 1000:8.2f} ms"
