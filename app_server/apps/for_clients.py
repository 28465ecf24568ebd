"""The service as requests of clients need it.

An administrator's demands are left out here: the handlers apply them themselves.
Source: docs/apps.md, "For clients".
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from app_server.apps.errors import AppsUnavailable
from app_server.apps.inventory.inventory import Connector
from app_server.apps.service import AppsService
from app_server.apps.snapshot import Snapshot
from app_server.config.values import ConfigError

logger = logging.getLogger(__name__)

NOTHING_DEMANDED: Mapping[str, Any] = {}


class ClientApps:
    """The rest of AppsPort, over the service."""

    def __init__(self, service: AppsService) -> None:
        self._service = service

    def current_snapshot(self, config: Mapping[str, Any]) -> Snapshot | None:
        """Return what is published now; see AppsPort."""
        return self._service.current_snapshot(config, NOTHING_DEMANDED)

    async def snapshot_allowing_cached(self, config: Mapping[str, Any]) -> Snapshot | None:
        """Return the first that can be had; see AppsPort."""
        return await self._service.snapshot_allowing_cached(config, NOTHING_DEMANDED)

    async def snapshot(self, config: Mapping[str, Any]) -> Snapshot | None:
        """Return the freshest that can be had; see AppsPort."""
        return await self._service.snapshot(config, NOTHING_DEMANDED)

    async def refresh_snapshot(self, config: Mapping[str, Any]) -> Snapshot | None:
        """Fetch; see AppsPort."""
        return await self._service.refresh_snapshot(config, NOTHING_DEMANDED)

    async def known_connectors(self, config: Mapping[str, Any]) -> Sequence[Connector]:
        """Return what is known without asking anybody; see AppsPort."""
        return await self._service.known_connectors(config)

    async def prepare_mcp_servers(self, config: Mapping[str, Any]) -> None:
        """Have something published; a failure is only logged."""
        try:
            await self._service.prepare_mcp_servers(config)
        except (AppsUnavailable, ConfigError) as exc:
            logger.warning("there are no servers of apps: %s", exc)
