"""config/mcpServer/reload: loaded threads take over what config.toml says of MCP servers now."""

from collections.abc import Mapping
from functools import partial

from app_server.config import Config, ConfigError
from app_server.handlers.configuration import Configuration
from app_server.handlers.failures import refresh_failures
from app_server.mcp.config import read_mcp_settings
from app_server.rpc.context import Handler, RequestContext
from app_server.rpc.hub import Hub
from app_server.turns.session import ThreadSession
from app_server.turns.sessions import Sessions
from protocol.lifecycle import WarningNotification
from protocol.mcp import McpServerRefreshResponse
from protocol.specs import NoParams


class McpReloadHandlers:
    """The method config/mcpServer/reload."""

    def __init__(self, sessions: Sessions, hub: Hub, configuration: Configuration) -> None:
        self._sessions = sessions
        self._hub = hub
        self._configuration = configuration

    @property
    def routes(self) -> Mapping[str, Handler]:
        """Method to handler."""
        return {"config/mcpServer/reload": self.reload}

    async def reload(self, context: RequestContext, params: NoParams) -> McpServerRefreshResponse:
        """Reconcile every loaded thread with the file.

        What a thread was started with lies on top of the new file as it lay on the old one. A
        thread for which both together make no sense keeps its servers, and its listeners are told.
        """
        with refresh_failures():
            base = await self._configuration.read()
            read_mcp_settings(base)
        for session in self._sessions:
            context.after_answer(partial(self._reload_thread, session, base))
        return McpServerRefreshResponse()

    def _reload_thread(self, session: ThreadSession, base: Config) -> None:
        config = session.config.renewed(base)
        try:
            mcp = read_mcp_settings(config)
        except ConfigError as exc:
            message = f"failed to refresh MCP servers: {exc}"
            thread_id = session.thread.id
            self._hub.emit(thread_id, WarningNotification(thread_id=thread_id, message=message))
        else:
            session.reload_servers(config, mcp)
