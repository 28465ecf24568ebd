"""plugin/* and marketplace/* together: they share what they work with."""

from collections.abc import Mapping

import anyio
import anyio.abc

from app_server.config.effective import Configuration
from app_server.config.file import ConfigFile
from app_server.handlers.apps.port import AppsPort
from app_server.handlers.apps.terms import AppPorts
from app_server.handlers.plugins.marketplaces import MarketplaceHandlers
from app_server.handlers.plugins.plugins import PluginHandlers
from app_server.handlers.plugins.ports import PluginPorts
from app_server.plugins.contributor import Plugins
from app_server.rpc.context import Handler
from app_server.sessions.registry import Sessions
from app_server.turns.ports import ClientPort


class PluginAreas:
    """The methods of plugins and of marketplaces."""

    def __init__(
        self,
        plugins: Plugins,
        sessions: Sessions,
        configuration: Configuration,
        file: ConfigFile,
        clients: ClientPort,
        tasks: anyio.abc.TaskGroup,
        apps: AppsPort | None,
    ) -> None:
        """Without `apps` a plugin declares none."""
        of_apps = AppPorts(sessions, configuration, clients, tasks, apps)
        ports = PluginPorts(plugins, sessions, configuration, file, of_apps, anyio.Lock())
        self._areas = (PluginHandlers(ports), MarketplaceHandlers(ports))

    @property
    def routes(self) -> Mapping[str, Handler]:
        """Method to handler."""
        return {m: handler for area in self._areas for m, handler in area.routes.items()}
