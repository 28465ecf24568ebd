"""Two functions with which a model finds a plugin that is not installed, and suggests it.

Source: docs/plugins.md, "Suggestions of the model".
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import StringConstraints

from app_server.config.values import NotRecorded
from app_server.extensions.contract.turns import PluginOffers
from app_server.models.catalogue.models import ModelFeatures
from app_server.turns.approval.tools import ELICITATION
from app_server.turns.context import ThreadContext
from app_server.turns.slot import RunningTurn
from app_server.turns.tools import (
    BadCall,
    RequestedCall,
    ToolArguments,
    TurnTool,
    function_declaration,
    text,
)
from protocol.integrations.suggestions import (
    SUGGESTION_SERVER,
    SuggestedPlugin,
    SuggestedPlugins,
    SuggestionMeta,
    SuggestionResult,
)
from protocol.model import Json, JsonObject
from protocol.turns.elicitation import (
    FormElicitation,
    McpElicitationSchema,
    McpServerElicitationRequestResponse,
)

logger = logging.getLogger(__name__)

LIST = "list_available_plugins_to_install"
REQUEST = "request_plugin_install"

MAX_LISTED = 64
"""Plugins that one call lists."""
MAX_DESCRIPTION_CHARS = 240
MAX_RELATED = 8
"""MCP servers, and apps, of one plugin that are listed."""

MAX_REASON_CHARS = 4_096

UNKNOWN = f"tool_id must match one of the discoverable tools returned by {LIST}"


class _Nothing(ToolArguments):
    pass


class _Suggestion(ToolArguments):
    tool_type: Literal["plugin"]
    action_type: Literal["install"]
    tool_id: str
    suggest_reason: Annotated[
        str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_REASON_CHARS)
    ]


@dataclass(frozen=True, slots=True)
class PluginInstall(TurnTool):
    """Lists plugins that could be installed, and asks the user whether to install one."""

    functions = (LIST, REQUEST)

    context: ThreadContext
    turn: RunningTurn
    plugins: PluginOffers

    def declarations(self, model: ModelFeatures) -> Sequence[JsonObject]:
        """Declare the functions where there may be something to install."""
        return _DECLARATIONS if self._has_any else []

    def offers(self, call: RequestedCall) -> bool:
        """Whether it is one of the functions, and they are declared."""
        return TurnTool.offers(self, call) and self._has_any

    @property
    def _has_any(self) -> bool:
        return self.plugins.has_any(self.context.servers.config.document)

    # Calls do not overlap: what comes after an install is meant to have it.

    async def run(self, call: RequestedCall) -> Json:
        """List (`SuggestedPlugins`), or ask and wait without limit (`SuggestionResult`), as JSON.

        Raises:
            BadCall: the arguments make no sense, or name a plugin that is not offered.
        """
        return await (self._list(call) if call.name == LIST else self._request(call))

    async def _list(self, call: RequestedCall) -> str:
        call.read(_Nothing)
        offered = await self.plugins.offered(self.context.servers.config.document)
        listed = SuggestedPlugins(tools=[_shortened(one) for one in offered[:MAX_LISTED]])
        return listed.model_dump_json()

    async def _request(self, call: RequestedCall) -> str:
        """Ask the clients about one; they install plugins, and what they did is verified."""
        suggestion = call.read(_Suggestion)
        context = self.context.servers.context()
        offered = await self.plugins.offered(context.config)
        plugin = next((one for one in offered if one.id == suggestion.tool_id), None)
        if plugin is None:
            raise BadCall(UNKNOWN)
        answer = await self._ask(
            SuggestionMeta(
                suggest_reason=suggestion.suggest_reason,
                tool_id=plugin.id,
                tool_name=plugin.name,
                suggestion_id=f"{call.name}_{call.call_id}",
                app_connector_ids=plugin.app_connector_ids,
            )
        )
        if _ends_the_questions(answer):
            await self._decline(plugin.id)
        confirmed = answer is not None and answer.action == "accept"
        completed = confirmed and await self.plugins.is_complete(plugin, context)
        return SuggestionResult(
            completed=completed,
            user_confirmed=confirmed,
            tool_id=plugin.id,
            tool_name=plugin.name,
            suggest_reason=suggestion.suggest_reason,
        ).model_dump_json()

    async def _ask(self, meta: SuggestionMeta) -> McpServerElicitationRequestResponse | None:
        """Put the question, whatever the approval policy says; None if a client refused."""
        turn = self.turn
        question = FormElicitation(
            thread_id=self.context.log.id,
            turn_id=turn.id,
            server_name=SUGGESTION_SERVER,
            meta=meta.model_dump(mode="json"),
            message=meta.suggest_reason,
            requested_schema=McpElicitationSchema(type="object", properties={}),
        )
        with self.context.status.waiting_on("waitingOnApproval"):
            answer, _ = await self.context.clients.ask(ELICITATION, question)
        return answer if isinstance(answer, McpServerElicitationRequestResponse) else None

    async def _decline(self, plugin_id: str) -> None:
        try:
            await self.plugins.decline(plugin_id)
        except NotRecorded as exc:
            logger.warning("that %s is not to be suggested is not written: %s", plugin_id, exc)


def _ends_the_questions(answer: McpServerElicitationRequestResponse | None) -> bool:
    if answer is None or answer.action != "decline" or not isinstance(answer.meta, dict):
        return False
    return answer.meta.get("persist") == "always"


def _shortened(plugin: SuggestedPlugin) -> SuggestedPlugin:
    description = plugin.description
    return plugin.model_copy(
        update={
            "description": None if description is None else description[:MAX_DESCRIPTION_CHARS],
            "mcp_server_names": plugin.mcp_server_names[:MAX_RELATED],
            "app_connector_ids": plugin.app_connector_ids[:MAX_RELATED],
        }
    )


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
            "tool_type": text("The `tool_type` of the plugin: `plugin`."),
            "action_type": text("`install`."),
            "tool_id": text("The `id` of the plugin."),
            "suggest_reason": text("For the user, in a line: what the plugin is good for now."),
        },
    ),
]
