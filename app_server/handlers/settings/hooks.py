"""hooks/list. Hooks are not run here, so there are none; who has configured some is told so.

Source: docs/config.md, "Hooks".
"""

from collections.abc import Mapping

from app_server.handlers.errors import config_failures, thread_failures
from app_server.handlers.services import Services
from app_server.rpc.context import Handler, RequestContext
from protocol.errors import invalid_request
from protocol.skills import HooksListEntry, HooksListParams, HooksListResponse

NOT_RUN = "hooks are not run by this server: those in config.toml have no effect"


class HookHandlers:
    """The method hooks/list."""

    def __init__(self, services: Services) -> None:
        self._configuration = services.configuration
        self._sessions = services.sessions

    @property
    def routes(self) -> Mapping[str, Handler]:
        """Method to handler."""
        return {"hooks/list": self.list_hooks}

    async def list_hooks(
        self, context: RequestContext, params: HooksListParams
    ) -> HooksListResponse:
        """List no hook for each folder, or for the folder of a loaded thread."""
        if params.thread_id is not None:
            if params.cwds:
                raise invalid_request("specify either threadId or cwds", "invalidParams")
            with thread_failures(params.thread_id, f"thread not found: {params.thread_id}"):
                folders = [self._sessions.get(params.thread_id).thread.state.settings.cwd]
        else:
            folders = params.cwds or [self._configuration.resolve(None)]
        with config_failures():
            configured = (await self._configuration.read()).document.get("hooks")
        warnings = [NOT_RUN] if configured else []
        return HooksListResponse(
            data=[
                HooksListEntry(cwd=folder, hooks=[], warnings=warnings, errors=[])
                for folder in folders
            ]
        )
