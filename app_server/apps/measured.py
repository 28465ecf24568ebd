"""How long this package takes, as lines of the log at level debug, under the names that Codex uses.

Nothing counts or sends them.
Source: docs/apps.md, "Measurements".
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

logger = logging.getLogger(__name__)

LIST = "codex.mcp.tools.list.duration_ms"
FETCH = "codex.mcp.tools.fetch_uncached.duration_ms"
CACHE_WRITE = "codex.mcp.tools.cache_write.duration_ms"
READ = "codex.apps.read.duration_ms"


class Measured:
    """One measurement; what is found out meanwhile goes with it."""

    def __init__(self, **tags: str) -> None:
        self.tags = tags


@contextmanager
def measured(name: str, **tags: str) -> Iterator[Measured]:
    """Measure the context, whether it works out or not."""
    measurement, began, outcome = Measured(**tags), perf_counter(), "failed"
    try:
        yield measurement
        outcome = "done"
    finally:
        duration_ms = (perf_counter() - began) * 1000
        said = "".join(f" {key}={value}" for key, value in measurement.tags.items())
        logger.debug("%s=%.2f outcome=%s%s", name, duration_ms, outcome, said)
