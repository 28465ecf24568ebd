"""permissionProfile/list: the built-in profiles, and those of the configuration.

Source: docs/config.md, "Permission profiles".
"""

from collections.abc import Mapping

from app_server.handlers.errors import config_failures, settings_failures
from app_server.handlers.services import Services
from app_server.permissions.profiles import profile_names, read_profile
from app_server.rpc.context import Handler, RequestContext
from app_server.sessions.settings import PERMISSION_PROFILES
from app_server.views.pages import page
from protocol.config import (
    PermissionProfileListParams,
    PermissionProfileListResponse,
    PermissionProfileSummary,
)
from protocol.policy import ReadOnlySandboxPolicy
from protocol.rollout import StoredProfile


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
        """List the profiles, and whether an administrator lets them be chosen."""
        with settings_failures("failed to read configuration layers"):
            allowed = (await self._configuration.requirements()).sandbox_modes
        with config_failures():
            config = await self._configuration.read()
            own = [(name, read_profile(config, name, "/")) for name in profile_names(config)]
        modes: list[tuple[str, str]] = [*PERMISSION_PROFILES.items()]
        modes += [(name, _mode(profile)) for name, profile in own]
        profiles = [
            PermissionProfileSummary(id=name, allowed=allowed is None or mode in allowed)
            for name, mode in modes
        ]
        data, next_cursor = page(profiles, params.cursor, params.limit, "permission profiles")
        return PermissionProfileListResponse(data=data, next_cursor=next_cursor)


def _mode(profile: StoredProfile) -> str:
    """Return the sandbox mode that says most of it."""
    reads_only = isinstance(profile.sandbox_policy, ReadOnlySandboxPolicy)
    return "read-only" if reads_only else "workspace-write"
