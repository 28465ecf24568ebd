"""What one server has done since its start, in numbers: answers, turns, failures.

Nothing here says what requests or turns were about. A failure is known by a word of ours; texts of
errors, which may repeat what somebody sent, are not kept.
Source: docs/operations.md, "Diagnostics".
"""

import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from app_server.telemetry.histogram import Histogram

MAX_FAILURE_KINDS = 64
"""Kinds of failures that are kept; the one that is the longest ago makes room for a new one."""

Source: TypeAlias = Literal["request", "turn"]


@dataclass(slots=True)
class MethodFigures:
    """The answers to one method."""

    latency: Histogram
    """From when a request was read to when its answer was ready to be sent."""
    failed: int = 0
    """Answers that are errors."""


@dataclass(slots=True)
class FailureFigures:
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


class ServerFigures:
    """The counters of one server. Bounded by the number of methods and of kinds of failures."""

    def __init__(self, now_ms: Callable[[], int] = _system_now_ms) -> None:
        """Begin to count; the server starts now."""
        self._now_ms = now_ms
        self._began_s = time.monotonic()
        self.started_at_ms = now_ms()
        """Unix milliseconds."""
        self.methods: dict[str, MethodFigures] = {}
        """By the name of a method that exists and was called."""
        self.turns: Counter[str] = Counter()
        """How many turns have ended, by how."""
        self._failures: OrderedDict[tuple[Source, str], FailureFigures] = OrderedDict()

    @property
    def uptime_ms(self) -> int:
        """For how long the server has run; changes of the clock do not count."""
        return round((time.monotonic() - self._began_s) * 1000)

    @property
    def failures(self) -> list[FailureFigures]:
        """The kinds of failures, the newest first."""
        return list(reversed(self._failures.values()))

    def answered(self, method: str, seconds: float, failure: str | None) -> None:
        """Count an answer of a method that exists; `failure` is None if it went well."""
        figures = self.methods.get(method)
        if figures is None:
            figures = self.methods[method] = MethodFigures(Histogram())
        figures.latency.add(seconds)
        if failure is not None:
            figures.failed += 1
            self._failed("request", failure, method)

    def refused(self, failure: str) -> None:
        """Count an error to what names no method that exists."""
        self._failed("request", failure, None)

    def turn_ended(self, end: str, failure: str | None) -> None:
        """Count the end of a turn; `failure` is the kind of its error."""
        self.turns[end] += 1
        if failure is not None:
            self._failed("turn", failure, None)

    def _failed(self, source: Source, kind: str, method: str | None) -> None:
        key = source, kind
        figures = self._failures.get(key)
        if figures is None:
            if len(self._failures) >= MAX_FAILURE_KINDS:
                self._failures.popitem(last=False)
            figures = self._failures[key] = FailureFigures(source, kind)
        self._failures.move_to_end(key)
        figures.count += 1
        figures.last_at_ms = self._now_ms()
        figures.last_method = method
