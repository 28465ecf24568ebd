"""What the functions about skills of MCP servers do: they ask the server, within bounds.

Source: docs/skills.md, "Skills of MCP servers".
"""

from typing import Annotated, Literal

import anyio
from pydantic import Field
from pydantic_core import to_json

from app_server.mcp.servers import skills
from app_server.mcp.servers.server_set import ServerSet
from app_server.mcp.tools.skill_resources import ServerSkill, belongs_to
from app_server.mcp_wire.errors import McpError
from app_server.turns.tools.call import BadCall, RequestedCall, ToolArguments
from protocol.model import Json

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


class ServerSkillCalls:
    """The calls of one turn to one server."""

    def __init__(self, servers: ServerSet, server: str | None) -> None:
        self._servers = servers
        self.server = server
        """Who has the skills; None: nobody any more."""
        self._listed: list[ServerSkill] | None = None
        """Asked for once a turn, and for each list."""

    async def run(self, reads: bool, call: RequestedCall) -> str:
        """List, or read a file; returns JSON.

        Raises:
            BadCall: the arguments make no sense, or the server does not answer.
        """
        try:
            with anyio.fail_after(skills.ANSWER_S):
                return await (self._read(call) if reads else self._list(call))
        except TimeoutError as exc:
            raise BadCall(f"the skills did not come within {skills.ANSWER_S:g} s") from exc
        except skills.BadSkillFile as exc:
            raise BadCall(str(exc)) from exc
        except McpError as exc:
            raise BadCall(f"the skills cannot be had: {exc}") from exc

    async def _list(self, call: RequestedCall) -> str:
        call.read(_List)
        self._listed = None
        found, left_out = await self._skills()
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

    async def _read(self, call: RequestedCall) -> str:
        wanted = call.read(_Read)
        found = (await self._skills())[0] if self._listed is None else self._listed
        if wanted.package not in [skill.package for skill in found]:
            raise BadCall("skill package is not available from the requested authority")
        if not belongs_to(wanted.package, wanted.resource):
            raise BadCall("skill resource does not match its package")
        text = await skills.read_skill_file(self._servers, self._name(), wanted.resource)
        start = int(wanted.cursor or 0)
        if start > len(text):
            raise BadCall("skills.read cursor is out of range")
        end = start + skills.PAGE_CHARS
        is_cut = end < len(text)
        return _compact(
            {
                "resource": wanted.resource,
                "contents": text[start:end],
                "next_cursor": str(end) if is_cut else None,
                "truncated": is_cut,
            }
        )

    async def _skills(self) -> tuple[list[ServerSkill], int]:
        self._listed, left_out = await skills.list_skills(self._servers, self._name())
        return self._listed, left_out

    def _name(self) -> str:
        if self.server is None:
            raise BadCall("there is no server with skills any more")
        return self.server


def _compact(value: Json) -> str:
    return to_json(value).decode()
