"""thread/settings/update, turn/settings/update: what a loaded thread's turns run with.

Source: docs/threads.md, "Settings".
"""

from collections.abc import Sequence
from dataclasses import replace

from app_server.config.values import Config
from app_server.handlers.errors import (
    config_failures,
    loaded_thread,
    setting_failures,
    thread_failures,
)
from app_server.handlers.services import Services
from app_server.handlers.threads.chosen.environments import chosen_environments
from app_server.handlers.threads.chosen.settings import (
    allowed_settings,
    hold_places,
    model_name,
    turn_overrides,
)
from app_server.handlers.threads.shown import announce_settings
from app_server.rpc.context import RequestContext, Routes
from app_server.sessions.settings import with_overrides
from app_server.threads.log.state.thread import ThreadState
from protocol.log.rollout import Record, Settings, SettingsChanged
from protocol.threads.settings import ThreadSettingsUpdateParams, ThreadSettingsUpdateResponse
from protocol.turns.requests import TurnSettingsUpdateParams, TurnSettingsUpdateResponse


class ThreadSettingsHandlers:
    """Settings of loaded threads and running turns."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.routes: Routes = {
            "thread/settings/update": self.update_thread,
            "turn/settings/update": self.update_turn,
        }

    async def update_thread(
        self, context: RequestContext, params: ThreadSettingsUpdateParams
    ) -> ThreadSettingsUpdateResponse:
        """Change a thread's settings from its next turn on; they are on disk when answered."""
        thread_id = params.thread_id
        warnings: Sequence[str] = ()
        with thread_failures(thread_id), config_failures(), setting_failures():
            overrides = await turn_overrides(self._services, params)
            requirements = await self._services.configuration.requirements()
            session = self._services.sessions.get(thread_id)

            def decide(state: ThreadState) -> Sequence[Record]:
                nonlocal warnings
                settings, warnings = allowed_settings(
                    state.settings, overrides, requirements, without_tier=_clears_tier(params)
                )
                if settings == state.settings:
                    return []
                return [SettingsChanged(at_ms=self._services.clock.now_ms(), settings=settings)]

            added = await session.thread.change(decide)
            await hold_places(self._services, overrides, session.thread.state.settings)
        if added:
            announce_settings(self._services.hub, context, session, warnings)
        return ThreadSettingsUpdateResponse()

    async def update_turn(
        self, context: RequestContext, params: TurnSettingsUpdateParams
    ) -> TurnSettingsUpdateResponse:
        """Change settings of the running turn alone, from its next model request on."""
        session = loaded_thread(self._services.sessions, params.thread_id)
        if session.slot.active_turn_id != params.turn_id:
            return TurnSettingsUpdateResponse(status="targetUnavailable")
        overrides = replace(
            chosen_environments(self._services, params.environments),
            model=model_name(params.model),
            approvals_reviewer=params.approvals_reviewer,
            effort=params.effort,
            summary=params.summary,
            service_tier=params.service_tier,
        )

        def change(settings: Settings) -> Settings:
            changed = with_overrides(settings, overrides, Config({}).view())
            update = {"service_tier": None} if _clears_tier(params) else {}
            return changed.model_copy(update=update)

        applied = session.change_turn_settings(params.turn_id, change)
        return TurnSettingsUpdateResponse(status="applied" if applied else "targetUnavailable")


def _clears_tier(params: ThreadSettingsUpdateParams | TurnSettingsUpdateParams) -> bool:
    return params.service_tier is None and "service_tier" in params.model_fields_set
