"""Two functions with which a model finds and reads the skills that an MCP server has.

Light: what makes the calls is imported with the first of them.
Source: docs/skills.md, "Skills of MCP servers".
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from app_server.mcp.servers.server_set import ServerSet
from app_server.mcp.servers.skills import skill_server
from app_server.runtime.loader import load
from app_server.turns.model.catalogue.features import ModelFeatures
from app_server.turns.tools.call import RequestedCall
from app_server.turns.tools.declaration import function_declaration
from protocol.model import Json, JsonObject

if TYPE_CHECKING:
    from app_server.tools.mcp.skill_calls import ServerSkillCalls

NAMESPACE = "skills"
LIST = "list"
READ = "read"


class ServerSkills:
    """Lists and reads the skills of the server that has some, in one turn."""

    def __init__(self, servers: ServerSet) -> None:
        self._servers = servers
        self._calls: ServerSkillCalls | None = None

    def declarations(self, model: ModelFeatures) -> Sequence[JsonObject]:
        """Declare the functions, if there is such a server."""
        return [] if self._server() is None else [_DECLARATION]

    def offers(self, call: RequestedCall) -> bool:
        """Whether it is one of the functions, and they are declared."""
        is_ours = call.kind == "function" and call.namespace == NAMESPACE
        return is_ours and call.name in (LIST, READ) and self._server() is not None

    def may_overlap(self, call: RequestedCall) -> bool:
        """Return True: it only reads."""
        return True

    async def run(self, call: RequestedCall) -> Json:
        """List or read; returns JSON.

        Raises:
            BadCall: the arguments make no sense, or the server does not answer.
            LoadFailed: what makes the call cannot be imported.
        """
        make = await load(_server_skill_calls)
        server = self._server()
        if self._calls is None or self._calls.server != server:
            self._calls = make(self._servers, server)
        return await self._calls.run(call.name == READ, call)

    def _server(self) -> str | None:
        return skill_server(self._servers)


def _server_skill_calls() -> "type[ServerSkillCalls]":
    from app_server.tools.mcp.skill_calls import ServerSkillCalls

    return ServerSkillCalls


_AUTHORITY: JsonObject = {
    "type": "object",
    "properties": {"kind": {"type": "string", "enum": ["orchestrator"]}},
    "required": ["kind"],
    "additionalProperties": False,
}

_DECLARATION: JsonObject = {
    "type": "namespace",
    "name": NAMESPACE,
    "description": "Skills that are not files of this machine.",
    "tools": [
        function_declaration(
            "list",
            "List the skills. When the task fits one of them, read its `main_resource` whole "
            "before you begin, and do as it says.",
            {"authority": _AUTHORITY},
        ),
        function_declaration(
            "read",
            "Read a file of a skill, page by page. A file names others as they are written in it, "
            "below the `package` of the skill.",
            {
                "authority": _AUTHORITY,
                "package": {"type": "string", "description": "The `package` of the skill."},
                "resource": {
                    "type": "string",
                    "description": "Its `main_resource`, or another file below `package`.",
                },
                "cursor": {
                    "type": "string",
                    "description": "The `next_cursor` of the page before.",
                },
            },
            required=["authority", "package", "resource"],
        ),
    ],
}
