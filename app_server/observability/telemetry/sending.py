"""Begins to send traces and metrics, where the configuration names a collector."""

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio.to_thread

from app_server.config.effective import Configuration
from app_server.config.values import ConfigError
from app_server.observability.settings import TelemetrySettings, read_telemetry_settings
from app_server.observability.telemetry.spans import exported_by
from app_server.runtime.loader import LoadFailed, load

if TYPE_CHECKING:
    from app_server.observability.telemetry.exporting import Exporting

logger = logging.getLogger(__name__)

TABLE = "otel"


@asynccontextmanager
async def sending(
    configuration: Configuration, version: str, figures: Callable[[], Mapping[str, int]]
) -> AsyncIterator[None]:
    """Send traces and metrics while the context lasts, if a collector is configured.

    `version` is that of the program, `figures` are those of the store; see Exporting.observe.

    Neither a configuration or a variable that makes no sense nor a missing package keeps a server
    from starting.
    """
    exporting = await _begin(configuration, version)
    if exporting is None:
        yield
        return
    exporting.observe(figures)
    try:
        with exported_by(exporting):
            yield
    finally:
        await anyio.to_thread.run_sync(exporting.close, abandon_on_cancel=True)


async def _begin(configuration: Configuration, version: str) -> "Exporting | None":
    try:
        config = await configuration.read()
        if config.document.get(TABLE) is None:
            return None
        settings = read_telemetry_settings(config)
    except ConfigError:
        # The check of the configuration says so.
        return None
    if not settings.is_on:
        return None
    try:
        make = await load(_make_exporting)
    except LoadFailed as exc:
        logger.warning(
            "nothing is sent to a collector: install the extra (pip install 'app-server[otel]'): "
            "%s",
            exc,
        )
        return None
    try:
        return await anyio.to_thread.run_sync(make, settings, version)
    except (ValueError, RuntimeError) as exc:
        # The SDK reads variables of the environment too, and raises for some of their values.
        logger.warning("nothing is sent to a collector: OpenTelemetry cannot be set up: %s", exc)
        return None


def _make_exporting() -> "Callable[[TelemetrySettings, str], Exporting]":
    from app_server.observability.telemetry.exporting import make_exporting

    return make_exporting
