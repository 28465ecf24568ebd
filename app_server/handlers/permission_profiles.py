"""permissionProfile/list, and what choosing a profile means: each is a sandbox mode by a name.

Source: docs/config.md, "Permission profiles".
"""

from collections.abc import Mapping

from app_server.handlers.configuration import Configuration
from app_server.handlers.failures import requirements_failures
from app_server.handlers.offset_pages import page
from app_server.rpc.context import Handler, RequestContext
from protocol.config import (
    PermissionProfileListParams,
    PermissionProfileListResponse,
    PermissionProfileSummary,
)
from protocol.errors import invalid_request
from protocol.policy import SandboxMode

PROFILES: Mapping[str, SandboxMode] = {
    ":read-only": "read-only",
    ":workspace": "workspace-write",
    ":danger-full-access": "danger-full-access",
}


def chosen_sandbox(profile: str | None, other: object, member: str) -> SandboxMode | None:
    """Return the sandbox mode of a profile that a client chose; `other` says the same its own way.

    Raises:
        RpcError: both are given, or there is no such profile.
    """
    if profile is None:
        return None
    if other is not None:
        raise invalid_request(
            f"`permissions` cannot be combined with `{member}`", "invalidSettings"
        )
    if profile not in PROFILES:
        kind = "built-in" if profile.startswith(":") else "configured"
        raise invalid_request(
            "failed to load configuration: default_permissions refers to unknown "
            f"{kind} profile `{profile}`",
            "configInvalid",
        )
    return PROFILES[profile]


class PermissionProfileHandlers:
    """The method permissionProfile/list."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

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
            for name, mode in PROFILES.items()
        ]
        data, next_cursor = page(profiles, params.cursor, params.limit, "permission profiles")
        return PermissionProfileListResponse(data=data, next_cursor=next_cursor)
