"""thread/settings/update, turn/settings/update: what a loaded thread's turns run with.

Source: docs/threads.md, "Settings".
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from app_server.config.requirements import Requirements
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
    model_name,
    profile_config,
    turn_overrides,
)
from app_server.rpc.context import Handler, RequestContext
from app_server.sessions.managed_policy import refuse_overrides, with_required
from app_server.sessions.settings import Overrides, with_overrides
from app_server.threads.log.state.thread import ThreadState
from app_server.views.threads import thread_settings
from protocol.rollout import Record, Settings, SettingsChanged
from protocol.threads import (
    ThreadSettingsUpdatedNotification,
    ThreadSettingsUpdateParams,
    ThreadSettingsUpdateResponse,
)
from protocol.turns import TurnSettingsUpdateParams, TurnSettingsUpdateResponse


class ThreadSettingsHandlers:
    """Settings of loaded threads and running turns."""

    def __init__(self, services: Services) -> None:
        self._services = services

    @property
    def routes(self) -> Mapping[str, Handler]:
        """Method to handler."""
        return {
            "thread/settings/update": self.update_thread,
            "turn/settings/update": self.update_turn,
        }

    async def update_thread(
        self, context: RequestContext, params: ThreadSettingsUpdateParams
    ) -> ThreadSettingsUpdateResponse:
        """Change a thread's settings from its next turn on; they are on disk when answered."""
        thread_id = params.thread_id
        warnings: Sequence[str] = ()
        with (
            thread_failures(thread_id),
            config_failures(),
            setting_failures(),
        ):
            configuration = self._services.configuration
            profiles = await profile_config(configuration, params.permissions)
            overrides = turn_overrides(
                params, configuration.resolve, self._services.environments.has, profiles
            )
            requirements = await self._services.configuration.requirements()
            session = self._services.sessions.get(thread_id)

            def decide(state: ThreadState) -> Sequence[Record]:
                nonlocal warnings
                settings, warnings = _changed(state.settings, params, overrides, requirements)
                if settings == state.settings:
                    return []
                return [SettingsChanged(at_ms=self._services.clock.now_ms(), settings=settings)]

            added = await session.thread.change(decide)
        if added:
            event = ThreadSettingsUpdatedNotification(
                thread_id=thread_id, thread_settings=thread_settings(session.thread.state.settings)
            )
            context.after_answer(self._services.hub.emit, thread_id, event)
            for warning in warnings:
                context.after_answer(session.publisher.warning, warning)
        return ThreadSettingsUpdateResponse()

    async def update_turn(
        self, context: RequestContext, params: TurnSettingsUpdateParams
    ) -> TurnSettingsUpdateResponse:
        """Change settings of the running turn alone, from its next model request on."""
        thread_id = params.thread_id
        session = loaded_thread(self._services.sessions, thread_id)
        if session.slot.active_turn_id != params.turn_id:
            return TurnSettingsUpdateResponse(status="targetUnavailable")
        chosen = chosen_environments(
            params.environments,
            None,
            None,
            self._services.configuration.resolve,
            self._services.environments.has,
        )
        overrides = replace(
            chosen,
            model=model_name(params.model),
            approvals_reviewer=params.approvals_reviewer,
            effort=params.effort,
            summary=params.summary,
            service_tier=params.service_tier,
        )

        def change(settings: Settings) -> Settings:
            changed = with_overrides(settings, overrides, Config({}).view())
            return _without_tier(changed) if _clears_tier(params) else changed

        applied = session.change_turn_settings(params.turn_id, change)
        return TurnSettingsUpdateResponse(status="applied" if applied else "targetUnavailable")


def _changed(
    settings: Settings,
    params: ThreadSettingsUpdateParams,
    overrides: Overrides,
    requirements: Requirements,
) -> tuple[Settings, Sequence[str]]:
    chosen = with_overrides(settings, overrides, Config({}).view())
    refuse_overrides(overrides, chosen, requirements)
    if _clears_tier(params):
        chosen = _without_tier(chosen)
    return with_required(chosen, requirements)


def _clears_tier(params: ThreadSettingsUpdateParams | TurnSettingsUpdateParams) -> bool:
    return params.service_tier is None and "service_tier" in params.model_fields_set


def _without_tier(settings: Settings) -> Settings:
    return settings.model_copy(update={"service_tier": None})
