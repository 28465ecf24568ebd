"""What the functions about plugins do: they list, ask the clients, and verify what was done.

Source: docs/plugins.md, "Suggestions of the model".
"""

import logging
from typing import Annotated, Literal

from pydantic import StringConstraints

from app_server.config.editing.errors import NotRecorded
from app_server.extension.installs import PluginOffers
from app_server.extension.registration import ContributionContext
from app_server.turns.approval.approvals import ELICITATION
from app_server.turns.tools.call import BadCall, RequestedCall, ToolArguments
from app_server.turns.tools.turn import TurnContext
from protocol.elicitation import (
    FormElicitation,
    McpElicitationSchema,
    McpServerElicitationRequestResponse,
)
from protocol.plugin_suggestions import (
    SUGGESTION_SERVER,
    SuggestedPlugin,
    SuggestedPlugins,
    SuggestionMeta,
    SuggestionResult,
)

logger = logging.getLogger(__name__)

MAX_LISTED = 64
"""Plugins that one call lists."""
MAX_DESCRIPTION_CHARS = 240
MAX_RELATED = 8
"""MCP servers, and apps, of one plugin that are listed."""

MAX_REASON_CHARS = 4_096

UNKNOWN = (
    "tool_id must match one of the discoverable tools returned by list_available_plugins_to_install"
)


class _Nothing(ToolArguments):
    pass


class _Suggestion(ToolArguments):
    tool_type: Literal["plugin"]
    action_type: Literal["install"]
    tool_id: str
    suggest_reason: Annotated[
        str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_REASON_CHARS)
    ]


class PluginSuggestion:
    """The calls of one turn."""

    def __init__(self, turn: TurnContext, offers: PluginOffers) -> None:
        self._turn = turn
        self._offers = offers

    async def list_offered(self, call: RequestedCall, context: ContributionContext) -> str:
        """Return the plugins that could be installed, as JSON; see `SuggestedPlugins`.

        Raises:
            BadCall: there are arguments.
        """
        call.read(_Nothing)
        offered = await self._offers.offered(context.config)
        listed = SuggestedPlugins(tools=[_shortened(one) for one in offered[:MAX_LISTED]])
        return listed.model_dump_json()

    async def request(self, call: RequestedCall, context: ContributionContext) -> str:
        """Ask the clients about one, and return what came of it, as JSON; see `SuggestionResult`.

        Clients install plugins; what they did is verified.

        Raises:
            BadCall: the arguments make no sense, or name a plugin that is not offered.
        """
        suggestion = call.read(_Suggestion)
        offered = await self._offers.offered(context.config)
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
        completed = confirmed and await self._offers.is_complete(plugin, context)
        return SuggestionResult(
            completed=completed,
            user_confirmed=confirmed,
            tool_id=plugin.id,
            tool_name=plugin.name,
            suggest_reason=suggestion.suggest_reason,
        ).model_dump_json()

    async def _ask(self, meta: SuggestionMeta) -> McpServerElicitationRequestResponse | None:
        """Put the question, whatever the approval policy says; None if a client refused."""
        turn = self._turn
        question = FormElicitation(
            thread_id=turn.thread_id,
            turn_id=turn.turn_id,
            server_name=SUGGESTION_SERVER,
            meta=meta.model_dump(mode="json"),
            message=meta.suggest_reason,
            requested_schema=McpElicitationSchema(type="object", properties={}),
        )
        with turn.waiting_on_approval():
            answer = await turn.clients.ask(turn.thread_id, ELICITATION, question)
        return answer if isinstance(answer, McpServerElicitationRequestResponse) else None

    async def _decline(self, plugin_id: str) -> None:
        try:
            await self._offers.decline(plugin_id)
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
