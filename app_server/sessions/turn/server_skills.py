"""Skills of MCP servers that the input of a turn names: their text, for the model.

Source: docs/skills.md, "Skills of MCP servers".
"""

import logging
from collections.abc import Callable, Sequence

import anyio

from app_server.mcp.servers import skills
from app_server.mcp.servers.server_set import ServerSet
from app_server.mcp.tools.skill_resources import ServerSkill
from app_server.mcp_wire.errors import McpError
from app_server.skills.instructions import MAX_NAMED, SkillNames
from app_server.turns.model.prompt.user_input import skill_message
from protocol.model import JsonObject

logger = logging.getLogger(__name__)


async def named_server_skills(
    servers: ServerSet, names: SkillNames, warn: Callable[[str], None]
) -> list[JsonObject]:
    """Read the named skills, and make the messages that show them; takes at most 10 s.

    What cannot be read is left out, and `warn` is called with the reason.
    """
    server = skills.skill_server(servers)
    if server is None:
        return []
    messages: list[JsonObject] = []

    def left_out(shown: str, why: McpError) -> None:
        logger.info("skills %s of %s cannot be read: %s", shown, server, why)
        warn(f"skills were left out: {shown} cannot be read: {why}")

    shown = ", ".join(f"`{name}`" for name in (*names.plain, *names.paths)[:MAX_NAMED])
    try:
        with anyio.fail_after(skills.ANSWER_S):
            listed, _ = await skills.list_skills(servers, server)
            for skill in _chosen(listed, names):
                shown = f"`{skill.name}`"
                try:
                    text = await skills.read_skill_file(servers, server, skill.main_resource)
                except McpError as exc:
                    left_out(shown, exc)
                    continue
                messages.append(skill_message(skill.name, skill.main_resource, _page(text)))
    except TimeoutError:
        warn(f"skills were left out: {shown} did not come within {skills.ANSWER_S:g} s")
    except McpError as exc:
        left_out(shown, exc)
    return messages


def _chosen(listed: Sequence[ServerSkill], names: SkillNames) -> list[ServerSkill]:
    by_path = [one for one in listed if {one.package, one.main_resource} & set(names.paths)]
    by_name = []
    for name in names.plain:
        matching = [one for one in listed if one.name == name]
        if len(matching) == 1 and matching[0] not in by_path:
            by_name += matching
    return [*by_path, *by_name][:MAX_NAMED]


def _page(text: str) -> str:
    if len(text) <= skills.PAGE_CHARS:
        return text
    rest = f"[… the rest is read with `skills.read` and the cursor `{skills.PAGE_CHARS}`]"
    return f"{text[: skills.PAGE_CHARS]}\n{rest}"
