"""The search in tools that are not declared: of MCP servers, if they are too many, and of clients.

Source: docs/mcp.md, "Deferred tools".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import anyio.to_thread

from app_server.mcp.servers.server_set import ServerSet
from app_server.mcp.tools.search import DEFAULT_LIMIT, MAX_LIMIT, best, text_of
from app_server.mcp.tools.table import (
    Tool,
    declare_found,
    deferred_lines,
    deferred_note,
)
from app_server.models.catalogue.models import ModelFeatures
from app_server.tools.dynamic_tools import DynamicTools
from app_server.turns.tools import BadCall, RequestedCall, TurnTool
from protocol.model import Json, JsonObject

SEARCH_FUNCTION: JsonObject = {
    "type": "tool_search",
    "execution": "client",
    "description": "Find tools by words that say what they should do.",
    "parameters": {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "Words of names and descriptions."},
            "limit": {
                "type": "number",
                "description": f"How many tools at most; {DEFAULT_LIMIT} if it is left out.",
            },
        },
        "required": ["query"],
        "additionalProperties": False,
    },
}


@dataclass(frozen=True, slots=True)
class ToolSearch(TurnTool):
    """Finds tools and declares them to the model."""

    servers: ServerSet
    clients: DynamicTools

    def declarations(self, model: ModelFeatures) -> Sequence[JsonObject]:
        """Declare the search while there is something to search."""
        is_needed = self.clients.deferred or self._deferred_of_servers()
        return [SEARCH_FUNCTION] if is_needed else []

    def notes(self) -> Sequence[str]:
        """Say which tools can be searched."""
        lines = self.clients.deferred_lines() if self.clients.deferred else []
        if self._deferred_of_servers():
            lines = [*deferred_lines(self.servers.tools()), *lines]
        return [deferred_note(lines)] if lines else []

    def _deferred_of_servers(self) -> Sequence[Tool]:
        servers = self.servers
        is_deferred = servers.servers and servers.settings.surface == "deferred"
        return servers.tools().tools if is_deferred else ()

    def offers(self, call: RequestedCall) -> bool:
        """Whether it is a search."""
        return call.kind == "search"

    def may_overlap(self, call: RequestedCall) -> bool:
        """Return True: it only reads."""
        return True

    async def run(self, call: RequestedCall) -> Json:
        """Return declarations of the tools that were found; none for what is no search."""
        try:
            arguments = call.arguments()
        except BadCall:
            return []
        members = arguments if isinstance(arguments, dict) else {}
        query, limit = members.get("query"), members.get("limit")
        if not isinstance(query, str):
            return []
        wanted = limit if isinstance(limit, int | float) else DEFAULT_LIMIT
        bounded = int(max(1, min(wanted, MAX_LIMIT)))
        table, of_servers = self.servers.tools(), self._deferred_of_servers()
        of_clients = self.clients.deferred
        texts = chain(map(text_of, of_servers), (tool.text for tool in of_clients))
        rows = await anyio.to_thread.run_sync(best, texts, query, bounded)
        count = len(of_servers)
        return [
            *declare_found(table, [of_servers[row] for row in rows if row < count]),
            *self.clients.declare_found([of_clients[r - count] for r in rows if r >= count]),
        ]
