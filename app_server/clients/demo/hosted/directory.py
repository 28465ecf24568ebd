"""What the endpoint says of apps beside MCP: the directory, details, a workspace's settings."""

from collections.abc import Callable, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from app_server.clients.demo.hosted.files import read_json
from app_server.clients.demo.hosted.tool import HostedConnector, HostedTool, JsonObject

PAGE = 50
"""Apps on one page of the directory."""


class Directory:
    """All apps there are, those that the account cannot use included."""

    def __init__(self, connectors: Callable[[], Sequence[HostedConnector]]) -> None:
        """Take what gives the apps of the account."""
        self._connectors = connectors
        self.others: list[JsonObject] = [
            {"id": "demo_notes", "name": "Notes", "description": "An app that is not linked."}
        ]
        """Entries of apps that the account cannot use yet."""
        self.page = PAGE
        self.settings: JsonObject = {"beta_settings": {"plugins": True}}
        """Of the account's workspace."""

    def routes(self, api: str) -> list[Route]:
        """Return what is served below a path."""
        listing = f"{api}/connectors/directory"
        return [
            Route(f"{listing}/list", self._list, methods=["GET"]),
            Route(f"{listing}/list_workspace", self._list_workspace, methods=["GET"]),
            Route(f"{api}/ps/apps/batch", self._batch, methods=["POST"]),
            Route(f"{api}/accounts/{{id}}/settings", self._settings, methods=["GET"]),
        ]

    def _entries(self) -> list[JsonObject]:
        known = [
            {"id": one.id, "name": one.name, "description": one.description}
            for one in self._connectors()
        ]
        return known + self.others

    async def _list(self, request: Request) -> Response:
        token = request.query_params.get("token", "0")
        start = int(token) if token.isdecimal() else 0
        entries = self._entries()
        end = start + self.page
        following = str(end) if end < len(entries) else None
        return JSONResponse({"apps": entries[start:end], "next_token": following})

    async def _list_workspace(self, request: Request) -> Response:
        return JSONResponse({"apps": [], "next_token": None})

    async def _batch(self, request: Request) -> Response:
        body = await read_json(request)
        ids = body.get("app_ids") if isinstance(body, dict) else None
        if not isinstance(ids, list):
            return JSONResponse({"detail": "app_ids is missing"}, 400)
        tools = {one.id: one.tools for one in self._connectors()}
        found = [{**entry, "tools": None} for entry in self._entries() if entry["id"] in ids]
        if body.get("include_tools") is True:
            for entry in found:
                entry["tools"] = [_summary(tool) for tool in tools.get(entry["id"], ())]
        return JSONResponse({"apps": found})

    async def _settings(self, request: Request) -> Response:
        return JSONResponse(self.settings)


def _summary(tool: HostedTool) -> dict[str, Any]:
    definition = tool.definition
    return {
        "name": definition["name"],
        "title": definition.get("title"),
        "description": definition.get("description"),
        "is_enabled": True,
        "disabled_reason": None,
        "is_read_only": (definition.get("annotations") or {}).get("readOnlyHint") is True,
    }
