"""Two functions with which a model finds and reads the skills that an MCP server has.

Source: docs/skills.md, "Skills of MCP servers".
"""

from collections.abc import Sequence
from typing import Annotated, Literal

import anyio
from pydantic import Field
from pydantic_core import to_json

from app_server.mcp.servers import skills
from app_server.mcp.servers.server_set import ServerSet
from app_server.mcp.servers.skills import ServerSkill, belongs_to
from app_server.mcp_wire.errors import McpError
from app_server.models.catalogue.models import ModelFeatures
from app_server.turns.tools import (
    BadCall,
    RequestedCall,
    ToolArguments,
    TurnTool,
    function_declaration,
    object_of,
    text,
)
from protocol.model import Json, JsonObject

NAMESPACE = "skills"
LIST = "list"
READ = "read"

AUTHORITY = {"kind": "orchestrator"}


class _Authority(ToolArguments):
    kind: Literal["orchestrator"]


class _List(ToolArguments):
    authority: _Authority


_Handle = Annotated[str, Field(min_length=1, max_length=2_048)]


class _Read(ToolArguments):
    authority: _Authority
    package: _Handle
    resource: _Handle
    cursor: Annotated[str, Field(pattern=r"^[0-9]{1,9}$")] | None = None


class ServerSkills(TurnTool):
    """Lists and reads the skills of the server that has some, in one turn."""

    def __init__(self, servers: ServerSet, turn_id: str) -> None:
        self._servers = servers
        self._turn_id = turn_id
        self._listed: tuple[str, list[ServerSkill]] | None = None
        """The server that was asked last, and what it has: asked once a turn, and for each list."""

    def declarations(self, model: ModelFeatures) -> Sequence[JsonObject]:
        """Declare the functions, if there is such a server."""
        return [] if skills.skill_server(self._servers) is None else [_DECLARATION]

    def offers(self, call: RequestedCall) -> bool:
        """Whether it is one of the functions, and they are declared."""
        is_ours = call.kind == "function" and call.namespace == NAMESPACE
        has_name = is_ours and call.name in (LIST, READ)
        return has_name and skills.skill_server(self._servers) is not None

    def may_overlap(self, call: RequestedCall) -> bool:
        """Return True: it only reads."""
        return True

    async def run(self, call: RequestedCall) -> Json:
        """List, or read a file; returns JSON.

        Raises:
            BadCall: the arguments make no sense, or the server does not answer.
        """
        server = skills.skill_server(self._servers)
        if server is None:
            raise BadCall("there is no server with skills any more")
        try:
            with anyio.fail_after(skills.ANSWER_S):
                return await (self._read if call.name == READ else self._list)(call, server)
        except TimeoutError as exc:
            raise BadCall(f"the skills did not come within {skills.ANSWER_S:g} s") from exc
        except skills.BadSkillFile as exc:
            raise BadCall(str(exc)) from exc
        except McpError as exc:
            raise BadCall(f"the skills cannot be had: {exc}") from exc

    async def _list(self, call: RequestedCall, server: str) -> str:
        call.read(_List)
        self._listed = None
        found, left_out = await self._ask(server)
        warnings = [f"{left_out} skills make no sense and are left out"] if left_out else []
        listed = [
            {
                "authority": AUTHORITY,
                "package": skill.package,
                "name": skill.name,
                "description": skill.description,
                "main_resource": skill.main_resource,
            }
            for skill in found
        ]
        return _compact({"skills": listed, "warnings": warnings})

    async def _read(self, call: RequestedCall, server: str) -> str:
        wanted = call.read(_Read)
        if self._listed is None or self._listed[0] != server:
            found, _ = await self._ask(server)
        else:
            found = self._listed[1]
        if wanted.package not in [skill.package for skill in found]:
            raise BadCall("skill package is not available from the requested authority")
        if not belongs_to(wanted.package, wanted.resource):
            raise BadCall("skill resource does not match its package")
        content = await skills.read_skill_file(
            self._servers, server, wanted.resource, self._turn_id
        )
        start = int(wanted.cursor or 0)
        if start > len(content):
            raise BadCall("skills.read cursor is out of range")
        end = start + skills.PAGE_CHARS
        is_cut = end < len(content)
        return _compact(
            {
                "resource": wanted.resource,
                "contents": content[start:end],
                "next_cursor": str(end) if is_cut else None,
                "truncated": is_cut,
            }
        )

    async def _ask(self, server: str) -> tuple[list[ServerSkill], int]:
        found, left_out = await skills.list_skills(self._servers, server, self._turn_id)
        self._listed = server, found
        return found, left_out


def _compact(value: Json) -> str:
    return to_json(value).decode()


_AUTHORITY = object_of({"kind": {"type": "string", "enum": ["orchestrator"]}})

_DECLARATION: JsonObject = {
    "type": "namespace",
    "name": NAMESPACE,
    "description": "Skills that are not files of this machine.",
    "tools": [
        function_declaration(
            LIST,
            "List the skills. When the task fits one of them, read its `main_resource` whole "
            "before you begin, and do as it says.",
            {"authority": _AUTHORITY},
        ),
        function_declaration(
            READ,
            "Read a file of a skill, page by page. A file names others as they are written in it, "
            "below the `package` of the skill.",
            {
                "authority": _AUTHORITY,
                "package": text("The `package` of the skill."),
                "resource": text("Its `main_resource`, or another file below `package`."),
                "cursor": text("The `next_cursor` of the page before."),
            },
            required=["authority", "package", "resource"],
        ),
    ],
}
