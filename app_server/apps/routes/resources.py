"""The server that has the resources of all apps, and no tool.

Source: docs/apps.md, "Local routes".
"""

from app_server.apps.routes.handshakes import RESOURCES_HANDSHAKE
from app_server.apps.routes.local_server import Context, LocalServer
from app_server.apps.routes.session import Backing
from protocol.model import JsonObject


def resource_server(backing: Backing) -> LocalServer:
    """Make the server; its lists and reads are the endpoint's, cursors and errors included."""

    async def forward(context: Context, params: JsonObject) -> JsonObject:
        return await server.forward(context, params)

    server = LocalServer(
        RESOURCES_HANDSHAKE,
        backing,
        {
            "tools/list": _no_tools,
            "resources/list": forward,
            "resources/templates/list": forward,
            "resources/read": forward,
        },
    )
    return server


async def _no_tools(context: Context, params: JsonObject) -> JsonObject:
    return {"tools": []}
