"""Hosted web search: declared here, executed by the model's provider.

Its calls are no calls of ours; app_server/turns/response.py makes the items that clients see.
Source: docs/tools.md, "Web search".
"""

from collections.abc import Sequence
from dataclasses import dataclass

from app_server.models.catalogue.models import IMAGE, TEXT, ModelFeatures
from app_server.turns.session_settings import WebSearchMode, WebSearchSettings
from app_server.turns.slot import RunningTurn
from app_server.turns.tools import RequestedCall, TurnTool
from protocol.model import Json, JsonObject

_ACCESS: dict[WebSearchMode, JsonObject] = {
    "cached": {"external_web_access": False},
    "indexed": {"external_web_access": True, "indexed_web_access": True},
    "live": {"external_web_access": True},
}


@dataclass(frozen=True, slots=True)
class WebSearch(TurnTool):
    """Declares the search."""

    settings: WebSearchSettings
    turn: RunningTurn

    def declarations(self, model: ModelFeatures) -> Sequence[JsonObject]:
        """Declare the search where it is known to be there, or the settings say that it is."""
        settings = self.settings
        mode = settings.mode or (self._usual_mode() if model.web_search else "disabled")
        if mode == "disabled" or not model.hosted_tools:
            return []
        kinds = [TEXT, IMAGE] if model.web_search and model.images else None
        shown = {} if kinds is None else {"search_content_types": kinds}
        return [{"type": "web_search", **_ACCESS[mode], **settings.members, **shown}]

    def _usual_mode(self) -> WebSearchMode:
        # A turn that may reach the network itself is kept from nothing by a copy of the web.
        return "live" if self.turn.settings.sandbox_policy.type == "dangerFullAccess" else "cached"

    async def run(self, call: RequestedCall) -> Json:
        """Never called: the model's provider makes its calls."""
        raise AssertionError("a call of web search is no call of ours")
