"""Durations of MCP servers as debug lines of the log: one for each call and each list.

A server that stands for another one is named by what is behind it, not by its passing address.
Source: docs/mcp.md, "Measurements".
"""

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import perf_counter

from app_server.extensions.contract.registration import MAX_IDENTITY_BYTES
from app_server.mcp.catalog.config import HttpTransport, ServerConfig

logger = logging.getLogger(__name__)

_NOT_MEASURED = nullcontext()


def measured_call(config: ServerConfig, tool: str) -> AbstractContextManager[None]:
    """Measure one call of a tool, whether it works out or not."""
    if not logger.isEnabledFor(logging.DEBUG):
        return _NOT_MEASURED
    metadata = config.metadata.of_tool(tool)
    identity = metadata.approval_identity
    names = (config.name, tool) if identity is None else (identity.server, identity.tool)
    server, name = map(_bounded, names)
    labels = "".join(f" {key}={value!r}" for key, value in metadata.metric_labels.items())
    return _measured(f"call server={server!r} tool={name!r} origin={origin(config)!r}{labels}")


def measured_list(config: ServerConfig) -> AbstractContextManager[None]:
    """Measure one complete list of tools, unless the server is one whose lists do not count."""
    telemetry = config.metadata.telemetry
    counts = telemetry is None or telemetry.count_list
    if not counts or not logger.isEnabledFor(logging.DEBUG):
        return _NOT_MEASURED
    return _measured(f"list server={config.name!r} origin={origin(config)!r}")


def origin(config: ServerConfig) -> str | None:
    """Return scheme, host and port of a server, or of what stands behind it; None for a process."""
    if config.metadata.telemetry is not None:
        return config.metadata.telemetry.origin
    transport = config.transport
    return transport.origin if isinstance(transport, HttpTransport) else None


@contextmanager
def _measured(what: str) -> Iterator[None]:
    began, outcome = perf_counter(), "failed"
    try:
        yield
        outcome = "done"
    finally:
        duration_ms = (perf_counter() - began) * 1000
        logger.debug("%s outcome=%s duration_ms=%.2f", what, outcome, duration_ms)


def _bounded(text: str) -> str | None:
    trimmed = text.strip()
    return trimmed if len(trimmed.encode()) <= MAX_IDENTITY_BYTES else None
