"""permissionProfile/list: each profile is a sandbox mode by a name.

Source: docs/config.md, "Permission profiles".
"""

from collections.abc import Mapping

from app_server.handlers.errors import requirements_failures
from app_server.handlers.services import Services
from app_server.rpc.context import Handler, RequestContext
from app_server.sessions.settings import PERMISSION_PROFILES
from app_server.views.offset_pages import page
from protocol.config import (
    PermissionProfileListParams,
    PermissionProfileListResponse,
    PermissionProfileSummary,
)


class PermissionProfileHandlers:
    """The method permissionProfile/list."""

    def __init__(self, services: Services) -> None:
        self._configuration = services.configuration

    @property
    def routes(self) -> Mapping[str, Handler]:
        """Method to handler."""
        return {"permissionProfile/list": self.list_profiles}

    async def list_profiles(
        self, context: RequestContext, params: PermissionProfileListParams
    ) -> PermissionProfileListResponse:
        """List the built-in profiles, and whether an administrator lets them be chosen."""
        with requirements_failures():
            allowed = (await self._configuration.requirements()).sandbox_modes
        profiles = [
            PermissionProfileSummary(id=name, allowed=allowed is None or mode in allowed)
            for name, mode in PERMISSION_PROFILES.items()
        ]
        data, next_cursor = page(profiles, params.cursor, params.limit, "permission profiles")
        return PermissionProfileListResponse(data=data, next_cursor=next_cursor)
