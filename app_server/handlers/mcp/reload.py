"""config/mcpServer/reload: loaded threads take over what config.toml says of MCP servers now."""

from collections.abc import Mapping

from app_server.handlers.errors import settings_failures
from app_server.handlers.services import Services
from app_server.mcp.catalog.config import read_mcp_settings
from app_server.rpc.context import Handler, RequestContext
from protocol.mcp import McpServerRefreshResponse
from protocol.specs import NoParams


class McpReloadHandlers:
    """The method config/mcpServer/reload."""

    def __init__(self, services: Services) -> None:
        self._sessions = services.sessions
        self._configuration = services.configuration

    @property
    def routes(self) -> Mapping[str, Handler]:
        """Method to handler."""
        return {"config/mcpServer/reload": self.reload}

    async def reload(self, context: RequestContext, params: NoParams) -> McpServerRefreshResponse:
        """Reconcile every loaded thread with the file, once the caller has been answered."""
        with settings_failures("failed to refresh MCP servers"):
            base = await self._configuration.read()
            read_mcp_settings(base)
        await self._sessions.refresh_extensions(base)
        context.after_answer(self._sessions.reload_servers, base)
        return McpServerRefreshResponse()
