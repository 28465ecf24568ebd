"""app/*: ChatGPT apps as clients see them, without any MCP connection of theirs."""

from collections.abc import Mapping

import anyio.abc

from app_server.config.effective import Configuration
from app_server.handlers.apps.list import AppListHandlers
from app_server.handlers.apps.port import AppsPort
from app_server.handlers.apps.read import AppReadHandlers
from app_server.handlers.apps.terms import AppPorts
from app_server.rpc.context import Handler
from app_server.sessions.registry import Sessions
from app_server.turns.ports import ClientPort


class AppHandlers:
    """The app/* methods."""

    def __init__(
        self,
        sessions: Sessions,
        configuration: Configuration,
        clients: ClientPort,
        tasks: anyio.abc.TaskGroup,
        apps: AppsPort | None,
    ) -> None:
        """Without `apps` there are none; `tasks` owns what goes on after an answer."""
        ports = AppPorts(sessions, configuration, clients, tasks, apps)
        self._areas = (AppListHandlers(ports), AppReadHandlers(ports))

    @property
    def routes(self) -> Mapping[str, Handler]:
        """Method to handler."""
        return {m: handler for area in self._areas for m, handler in area.routes.items()}
