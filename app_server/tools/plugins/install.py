"""Two functions with which a model finds a plugin that is not installed, and suggests it.

Light: what makes the calls is imported with the first of them.
Source: docs/plugins.md, "Suggestions of the model".
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from app_server.extension.installs import PluginOffers
from app_server.extension.registration import ContributionContext
from app_server.runtime.loader import load
from app_server.turns.model.catalogue.features import ModelFeatures
from app_server.turns.tools.call import RequestedCall
from app_server.turns.tools.declaration import function_declaration
from app_server.turns.tools.turn import TurnContext
from protocol.model import Json, JsonObject

if TYPE_CHECKING:
    from app_server.tools.plugins.suggestion import PluginSuggestion

LIST = "list_available_plugins_to_install"
REQUEST = "request_plugin_install"


class PluginInstall:
    """Lists plugins that could be installed, and asks the user whether to install one."""

    def __init__(
        self,
        turn: TurnContext,
        offers: PluginOffers,
        context: Callable[[], ContributionContext],
    ) -> None:
        """`context` is what extensions are given of the thread."""
        self._turn = turn
        self._offers = offers
        self._context = context

    def declarations(self, model: ModelFeatures) -> Sequence[JsonObject]:
        """Declare the functions where there may be something to install."""
        return _DECLARATIONS if self._offers.has_any(self._context().config) else []

    def offers(self, call: RequestedCall) -> bool:
        """Whether it is one of the functions, and they are declared."""
        is_ours = call.is_function(LIST) or call.is_function(REQUEST)
        return is_ours and self._offers.has_any(self._context().config)

    def may_overlap(self, call: RequestedCall) -> bool:
        """Return False: what comes after an install is meant to have it."""
        return False

    async def run(self, call: RequestedCall) -> Json:
        """List, or ask and wait without limit; returns JSON.

        Raises:
            BadCall: the arguments make no sense, or name a plugin that is not offered.
            LoadFailed: what makes the call cannot be imported.
        """
        suggestion = (await load(_suggestion))(self._turn, self._offers)
        if call.name == LIST:
            return await suggestion.list_offered(call, self._context())
        return await suggestion.request(call, self._context())


def _suggestion() -> "type[PluginSuggestion]":
    from app_server.tools.plugins.suggestion import PluginSuggestion

    return PluginSuggestion


def _text(description: str) -> JsonObject:
    return {"type": "string", "description": description}


_DECLARATIONS = [
    function_declaration(
        LIST,
        "List the plugins that can be installed. Call it only if the user asks for a plugin by "
        "name that none of your tools belongs to; search your tools first, if there is a search.",
        {},
    ),
    function_declaration(
        REQUEST,
        f"Ask the user to install a plugin that {LIST} has returned and that is the very one that "
        "the user asked for. Suggest nothing that is only similar. Call no other tool beside it.",
        {
            "tool_type": _text("The `tool_type` of the plugin: `plugin`."),
            "action_type": _text("`install`."),
            "tool_id": _text("The `id` of the plugin."),
            "suggest_reason": _text("For the user, in a line: what the plugin is good for now."),
        },
    ),
]
