"""Durations of this package as debug lines of the log, under the metric names of Codex.

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


@contextmanager
def measured(name: str, **tags: str) -> Iterator[dict[str, str]]:
    """Measure the context, whether it works out or not; tags can be added and changed meanwhile."""
    began, outcome = perf_counter(), "failed"
    try:
        yield tags
        outcome = "done"
    finally:
        duration_ms = (perf_counter() - began) * 1000
        said = "".join(f" {key}={value}" for key, value in tags.items())
        logger.debug("%s=%.2f outcome=%s%s", name, duration_ms, outcome, said)
