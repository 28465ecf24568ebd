"""initialize: the first request of every connection."""

import platform
import sys
from collections.abc import Sequence

from app_server.handlers.services import Services
from app_server.handlers.views.rules import rules_warning
from app_server.rpc.context import ClientSession, ConnectionId, RequestContext, Routes
from app_server.runtime.loader import LoadFailed
from protocol.jsonrpc.errors import invalid_params, invalid_request
from protocol.server.lifecycle import (
    PROTOCOL_VERSION,
    ConfigWarningNotification,
    InitializeCapabilities,
    InitializeParams,
    InitializeResponse,
)


class LifecycleHandlers:
    """The handshake."""

    def __init__(self, services: Services) -> None:
        self._home = services.home
        self._version = services.version
        self._rules = services.rules
        self._configuration = services.configuration
        self._problems = services.config_problems
        self._warned: set[ConnectionId] = set()
        """The clients that were warned of what is wrong, as far as they are still there."""
        self._configuration.on_change(self._files_have_changed)
        self._hub = services.hub
        self._tasks = services.tasks
        self.routes: Routes = {"initialize": self.initialize}

    async def initialize(
        self, context: RequestContext, params: InitializeParams
    ) -> InitializeResponse:
        """Settle who talks to whom; everything else comes after this."""
        if context.session is not None:
            raise invalid_request("Already initialized", "alreadyInitialized")
        info = params.client_info
        if not info.name.strip() or not info.name.isprintable():
            rule = "must be printable and not empty"
            raise invalid_params(
                f"Invalid params: `clientInfo.name` {rule}", field="clientInfo.name", rule=rule
            )
        capabilities = params.capabilities or InitializeCapabilities()
        context.open_session(
            ClientSession(
                info=info,
                capabilities=capabilities,
                jsonrpc=context.jsonrpc,
                opted_out=frozenset(capabilities.opt_out_notification_methods or ()),
            )
        )
        context.after_answer(self._begin_to_warn, context.connection_id)
        system = f"{platform.system()} {platform.release()}; {platform.machine()}"
        return InitializeResponse(
            user_agent=(
                f"{info.name}/{PROTOCOL_VERSION} ({system}) app-server/{self._version} "
                f"({info.name}; {info.version})"
            ),
            codex_home=str(self._home),
            platform_family="windows" if sys.platform == "win32" else "unix",
            platform_os={"darwin": "macos", "win32": "windows"}.get(sys.platform, "linux"),
        )

    def _begin_to_warn(self, connection_id: ConnectionId) -> None:
        self._tasks.start_soon(self._warn_of_rules, connection_id)
        self._tasks.start_soon(self._warn_of_configuration, connection_id)

    async def _warn_of_rules(self, connection_id: ConnectionId) -> None:
        """Warn a client that has come of files of rules that are broken."""
        for broken in await self._rules.broken_before():
            self._hub.notify(connection_id, rules_warning(broken))

    async def _warn_of_configuration(self, connection_id: ConnectionId) -> None:
        """Warn a client that has come of wrong settings, and those before it of new ones."""
        for problem in await self._warn_of_news():
            self._hub.notify(connection_id, problem)
        self._warned.add(connection_id)
        self._hub.connections.when_gone(connection_id, self._warned.discard)

    async def _warn_of_news(self) -> Sequence[ConfigWarningNotification]:
        """Warn those who know of the others of faults that were not there before; returns all."""
        try:
            problems = await self._problems.get()
        except LoadFailed:
            # It was logged; requests that need the settings still say what is wrong with them.
            return ()
        found = await problems.find()
        for problem in found.new:
            for connection_id in self._warned:
                self._hub.notify(connection_id, problem)
        return found.all

    def _files_have_changed(self) -> None:
        if self._problems.value is not None:
            # Before that nobody was warned, and who comes is warned of all.
            self._tasks.start_soon(self._warn_of_news)
