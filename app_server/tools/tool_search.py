"""The search in tools of MCP servers, for when they are too many to declare.

Source: docs/mcp.md, "Deferred tools".
"""

from collections.abc import Sequence

import anyio.to_thread

from app_server.mcp.connections import ServerSet
from app_server.mcp.tools.declare import SEARCH_FUNCTION, declare_found
from app_server.mcp.tools.search import DEFAULT_LIMIT, MAX_LIMIT, search_tools
from app_server.turns.model.features import ModelFeatures
from app_server.turns.tools.call import BadCall, RequestedCall
from protocol.model import Json, JsonObject


class ToolSearch:
    """Finds tools and declares them to the model."""

    def __init__(self, servers: ServerSet) -> None:
        self._servers = servers

    def declarations(self, model: ModelFeatures) -> Sequence[JsonObject]:
        """Declare the search while there is something to search."""
        servers = self._servers
        is_needed = servers.servers and servers.surface == "deferred" and servers.tools().tools
        return [SEARCH_FUNCTION] if is_needed else []

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
        table = self._servers.tools()
        found = await anyio.to_thread.run_sync(search_tools, table, query, bounded)
        return declare_found(table, found)
