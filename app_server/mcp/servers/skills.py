"""The skills of one server of a thread: which there are, and what their files say.

Source: docs/skills.md, "Skills of MCP servers".
"""

from app_server.mcp.connection import list_all
from app_server.mcp.servers.requests import read_resource
from app_server.mcp.servers.server_set import ServerSet
from app_server.mcp.tools.skill_resources import ServerSkill, read_skills
from app_server.mcp_wire.errors import McpError
from protocol.model import Json

ANSWER_S = 10.0
"""For all pages of a list, and for one file; those who ask bound it."""

MAX_FILE_BYTES = 1024 * 1024
PAGE_CHARS = 8_192
"""Of a file that a model is shown at once."""


class BadSkillFile(McpError):
    """A file of a skill that a model cannot be shown; the text says why."""


def skill_server(servers: ServerSet) -> str | None:
    """Return the raw name of the server whose skills count; None: there is none."""
    found = servers.servers.items()
    return next((name for name, one in found if one.config.metadata.serves_skills), None)


async def list_skills(servers: ServerSet, name: str) -> tuple[list[ServerSkill], int]:
    """Return the skills of a server, and how many others make no sense.

    Raises:
        McpError: the server has not started, or does not answer as it should.
    """
    async with servers.lease(name) as connection:
        resources, _ = await list_all(connection, "resources/list", "resources")
    return read_skills(resources)


async def read_skill_file(servers: ServerSet, name: str, uri: str) -> str:
    """Return the text of a file of a listed skill, at most MAX_FILE_BYTES.

    Raises:
        McpError: see `list_skills`.
        BadSkillFile: it has no text, or too much.
    """
    result = await read_resource(servers, name, uri, None)
    contents: Json = result.get("contents")
    texts = [
        one["text"]
        for one in (contents if isinstance(contents, list) else [])
        if isinstance(one, dict) and one.get("uri") == uri and isinstance(one.get("text"), str)
    ]
    if not texts:
        raise BadSkillFile("the resource has no text")
    text = str(texts[0])
    if len(text.encode()) > MAX_FILE_BYTES:
        raise BadSkillFile(f"the resource is larger than {MAX_FILE_BYTES} bytes")
    return text
