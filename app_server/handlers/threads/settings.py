"""thread/settings/update: what a loaded thread's turns run with.

Source: docs/threads.md, "Settings".
"""

from collections.abc import Sequence

from app_server.handlers.errors import (
    config_failures,
    thread_failures,
)
from app_server.handlers.serving import RequestContext, serves
from app_server.handlers.threads.overrides import (
    chosen_settings,
    pin_roots,
    turn_overrides,
)
from app_server.handlers.threads.shown import announce_settings
from app_server.threads.log.state import ThreadState
from protocol.log.rollout import Record, SettingsChanged
from protocol.threads.settings import ThreadSettingsUpdateParams, ThreadSettingsUpdateResponse
from protocol.turns.requests import TurnSettingsUpdateParams


@serves("thread/settings/update")
async def update_thread_settings(
    context: RequestContext, params: ThreadSettingsUpdateParams
) -> ThreadSettingsUpdateResponse:
    """Change a thread's settings from its next turn on; they are on disk when answered."""
    thread_id = params.thread_id
    warnings: Sequence[str] = ()
    with thread_failures(thread_id), config_failures():
        overrides = await turn_overrides(context.services, params)
        requirements = await context.services.configuration.requirements()
        session = context.services.sessions.get(thread_id)

        def decide(state: ThreadState) -> Sequence[Record]:
            nonlocal warnings
            settings, warnings = chosen_settings(
                state.settings, overrides, requirements, without_tier=clears_tier(params)
            )
            if settings == state.settings:
                return []
            return [SettingsChanged(at_ms=context.services.clock.now_ms(), settings=settings)]

        added = await session.log.change(decide)
        await pin_roots(context.services, overrides, session.log.state.settings)
    if added:
        announce_settings(context.services.hub, context, session, warnings)
    return ThreadSettingsUpdateResponse()


def clears_tier(params: ThreadSettingsUpdateParams | TurnSettingsUpdateParams) -> bool:
    """Whether a client takes the service tier away, rather than leaving it as it is."""
    return params.service_tier is None and "service_tier" in params.model_fields_set
