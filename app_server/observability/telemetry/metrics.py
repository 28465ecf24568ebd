"""Metrics of one server since its start: answers, turns, failures.

Nothing here says what requests or turns were about. A failure is known by a word of ours; texts of
errors, which may repeat what somebody sent, are not kept.
Source: docs/operations.md, "Diagnostics".
"""

import time
from array import array
from bisect import bisect_left
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil
from typing import Literal, TypeAlias

MAX_FAILURE_KINDS = 64
"""Kinds of failures that are kept; the one that is the longest ago makes room for a new one."""

Source: TypeAlias = Literal["request", "turn"]

STEPS_PER_DOUBLING = 4
FIRST_US = 16.0
"""The upper bound of the first bucket."""
BUCKETS = 27 * STEPS_PER_DOUBLING + 1
"""The last one also has whatever takes longer."""


_BOUNDS_US = [FIRST_US * 2 ** (bucket / STEPS_PER_DOUBLING) for bucket in range(BUCKETS - 1)]
"""Of all buckets but the last one."""


def upper_us(bucket: int) -> int:
    """Return the upper bound of a bucket, in microseconds."""
    return ceil(FIRST_US * 2 ** (bucket / STEPS_PER_DOUBLING))


class Histogram:
    """Count times, and read quantiles from the counts; one event loop adds to it.

    Other threads may read it; a time that is just being added is counted there or not.

    A time falls into one of 108 buckets, each 19 % (2 to the power of 1/4) wider than the one
    before, from 16 µs to 36 min. So a quantile is at most 19 % too high, whatever was measured, and
    a histogram takes less than 1 KiB, however much was measured.
    """

    def __init__(self) -> None:
        self.count = 0
        self.max_us = 0.0
        self._counts = array("Q", bytes(8 * BUCKETS))

    def add(self, seconds: float) -> None:
        """Count one time."""
        us = seconds * 1e6
        self.count += 1
        if us > self.max_us:  # noqa: PLR1730 (twice as fast as max, and done for every request)
            self.max_us = us
        self._counts[bisect_left(_BOUNDS_US, us)] += 1

    def quantile_us(self, share: float) -> int:
        """Return the quantile of the durations, `share` from 0 to 1; 0 without any.

        It is at most 19 % above the least such time, and never above the longest one.
        """
        wanted = ceil(share * self.count)
        for up_to_us, count in self.buckets():
            wanted -= count
            if wanted <= 0:
                return min(up_to_us, ceil(self.max_us))
        return 0

    def buckets(self) -> Iterator[tuple[int, int]]:
        """Give the upper bound in microseconds and the count of each bucket that has any."""
        for bucket, count in enumerate(self._counts):
            if count:
                yield upper_us(bucket), count


@dataclass(slots=True)
class MethodMetrics:
    """The answers to one method."""

    latency: Histogram
    """From when a request was read to when its answer was ready to be sent."""
    failed: int = 0
    """Answers that are errors."""


@dataclass(slots=True)
class FailureMetrics:
    """The failures of one kind."""

    source: Source
    kind: str
    """A word of ours, such as `threadNotFound`."""
    count: int = 0
    last_at_ms: int = 0
    """Unix milliseconds."""
    last_method: str | None = None
    """The method that failed last; None for turns and for methods that do not exist."""


def _system_now_ms() -> int:
    return time.time_ns() // 1_000_000


class ServerMetrics:
    """The counters of one server. Bounded by the number of methods and of kinds of failures."""

    def __init__(self, now_ms: Callable[[], int] = _system_now_ms) -> None:
        """Begin to count; the server starts now."""
        self._now_ms = now_ms
        self._began_s = time.monotonic()
        self.started_at_ms = now_ms()
        """Unix milliseconds."""
        self.methods: dict[str, MethodMetrics] = {}
        """By the name of a method that exists and was called."""
        self.turns: Counter[str] = Counter()
        """Number of ended turns, by status."""
        self._failures: OrderedDict[tuple[Source, str], FailureMetrics] = OrderedDict()

    @property
    def uptime_ms(self) -> int:
        """For how long the server has run; changes of the clock do not count."""
        return round((time.monotonic() - self._began_s) * 1000)

    @property
    def failures(self) -> list[FailureMetrics]:
        """The kinds of failures, the newest first."""
        return list(reversed(self._failures.values()))

    def answered(self, method: str, seconds: float, failure: str | None) -> None:
        """Count an answer of a method that exists; `failure` is None if it went well."""
        metrics = self.methods.get(method)
        if metrics is None:
            metrics = self.methods[method] = MethodMetrics(Histogram())
        metrics.latency.add(seconds)
        if failure is not None:
            metrics.failed += 1
            self._failed("request", failure, method)

    def refused(self, failure: str) -> None:
        """Count an error of an unknown method."""
        self._failed("request", failure, None)

    def turn_ended(self, end: str, failure: str | None) -> None:
        """Count the end of a turn; `failure` is the kind of its error."""
        self.turns[end] += 1
        if failure is not None:
            self._failed("turn", failure, None)

    def _failed(self, source: Source, kind: str, method: str | None) -> None:
        key = source, kind
        metrics = self._failures.get(key)
        if metrics is None:
            if len(self._failures) >= MAX_FAILURE_KINDS:
                self._failures.popitem(last=False)
            metrics = self._failures[key] = FailureMetrics(source, kind)
        self._failures.move_to_end(key)
        metrics.count += 1
        metrics.last_at_ms = self._now_ms()
        metrics.last_method = method
