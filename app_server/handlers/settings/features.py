"""experimentalFeature/* and collaborationMode/list: what can be switched, and chosen, here.

Both list what this server does, and nothing that it would only accept.
Source: docs/config.md, "Features".
"""

from collections.abc import Iterator

from app_server.config.values import ConfigView
from app_server.handlers.errors import config_failures, loaded_thread
from app_server.handlers.services import Services
from app_server.handlers.settings.feature_table import FEATURES
from app_server.handlers.views.pages import page
from app_server.rpc.context import RequestContext, Routes
from protocol.server.models import (
    CollaborationModeListParams,
    CollaborationModeListResponse,
    CollaborationModeMask,
    ExperimentalFeature,
    ExperimentalFeatureEnablementSetParams,
    ExperimentalFeatureEnablementSetResponse,
    ExperimentalFeatureListParams,
    ExperimentalFeatureListResponse,
)

MODES = (
    CollaborationModeMask(name="Plan", mode="plan", reasoning_effort="medium"),
    CollaborationModeMask(name="Default", mode="default"),
)
"""What clients put into `collaborationMode` (docs/tools.md, "Plan mode")."""


class FeatureHandlers:
    """The methods experimentalFeature/* and collaborationMode/list."""

    def __init__(self, services: Services) -> None:
        self._configuration = services.configuration
        self._sessions = services.sessions
        self.routes: Routes = {
            "collaborationMode/list": self.list_modes,
            "experimentalFeature/enablement/set": self.switch,
            "experimentalFeature/list": self.list_features,
        }

    async def list_features(
        self, context: RequestContext, params: ExperimentalFeatureListParams
    ) -> ExperimentalFeatureListResponse:
        """List the features, enabled as the configuration, or that of a loaded thread, has them."""
        with config_failures():
            if params.thread_id is None:
                config = await self._configuration.read()
            else:
                config = loaded_thread(self._sessions, params.thread_id).config
            features = list(_shown(config.view().at("features")))
        data, next_cursor = page(features, params.cursor, params.limit, "feature flags")
        return ExperimentalFeatureListResponse(data=data, next_cursor=next_cursor)

    async def switch(
        self, context: RequestContext, params: ExperimentalFeatureEnablementSetParams
    ) -> ExperimentalFeatureEnablementSetResponse:
        """Switch features until the server ends; the settings of files win.

        Answers with those that are now what was asked for. Unknown names are left out.
        """
        names = {alias: feature.names[0] for feature in FEATURES for alias in feature.names}
        wanted = {
            names[name]: enabled for name, enabled in params.enablement.items() if name in names
        }
        with config_failures():
            await self._configuration.read()
            self._configuration.switch_features(wanted)
            config = await self._configuration.read()
        shown = {feature.name: feature.enabled for feature in _shown(config.view().at("features"))}
        context.after_answer(self._sessions.reload_servers, config)
        return ExperimentalFeatureEnablementSetResponse(
            enablement={name: on for name, on in wanted.items() if shown[name] == on}
        )

    async def list_modes(
        self, context: RequestContext, params: CollaborationModeListParams
    ) -> CollaborationModeListResponse:
        """List the modes that a thread can be put into."""
        return CollaborationModeListResponse(data=list(MODES))


def _shown(table: ConfigView) -> Iterator[ExperimentalFeature]:
    for feature in FEATURES:
        key = next((name for name in feature.names if name in table), feature.names[0])
        yield ExperimentalFeature(
            name=feature.names[0],
            stage=feature.stage,
            display_name=feature.display_name,
            description=feature.description,
            announcement=feature.announcement,
            enabled=_is_on(table, key, default=feature.default),
            default_enabled=feature.default,
        )


def _is_on(table: ConfigView, key: str, *, default: bool) -> bool:
    """Read a feature: a boolean, or a table of its settings, which is on unless it says not."""
    if isinstance(table.table.get(key), dict):
        return table.at(key).boolean("enabled", default=True)
    return table.boolean(key, default=default)
