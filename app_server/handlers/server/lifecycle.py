"""initialize: the first request of every connection."""

import platform
import sys
from collections.abc import Mapping

from app_server.handlers.services import Services
from app_server.rpc.context import ClientSession, Handler, RequestContext
from protocol.errors import invalid_params, invalid_request
from protocol.lifecycle import (
    PROTOCOL_VERSION,
    InitializeCapabilities,
    InitializeParams,
    InitializeResponse,
)


class LifecycleHandlers:
    """The handshake."""

    def __init__(self, services: Services) -> None:
        self._home = services.home
        self._version = services.version

    @property
    def routes(self) -> Mapping[str, Handler]:
        """Method to handler."""
        return {"initialize": self.initialize}

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
