"""The skills of one server of a thread: which there are, and what their files say.

A skill is a resource of the type `mcp/skill`; its files are resources below its URI.
Source: docs/skills.md, "Skills of MCP servers".
"""

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from app_server.mcp.servers.requests import list_of, read_resource
from app_server.mcp.servers.server_set import ServerSet
from app_server.mcp_wire.errors import McpError
from protocol.model import Json, JsonObject

MIME_TYPE = "mcp/skill"
MAIN_FILE = "SKILL.md"

MAX_SKILLS = 100
"""Of one server; those behind them are left out."""
MAX_NAME_CHARS = 64
"""Of a skill, and of a plugin."""
MAX_DESCRIPTION_CHARS = 1_024
MAX_SKILL_URI_CHARS = 1_024
MAX_URI_CHARS = 2_048
"""Of a file of a skill."""


@dataclass(frozen=True, slots=True)
class ServerSkill:
    """One skill."""

    package: str
    """The URI of the skill."""
    name: str
    """`PLUGIN:SKILL`, or the skill's name alone for one of the user."""
    description: str

    @property
    def main_resource(self) -> str:
        """The URI of its SKILL.md."""
        return f"{self.package}/{MAIN_FILE}"


def read_skills(resources: Iterable[JsonObject]) -> tuple[list[ServerSkill], int]:
    """Return the skills among resources, and how many of them make no sense."""
    declared = [one for one in resources if one.get("mimeType") == MIME_TYPE]
    read = [_skill(one) for one in declared[:MAX_SKILLS]]
    skills = [skill for skill in read if skill is not None]
    return skills, len(read) - len(skills)


def belongs_to(package: str, resource: str) -> bool:
    """Whether a URI is that of a file of a skill: below it, as it is written."""
    return _is_skill_uri(resource, MAX_URI_CHARS) and resource.startswith(f"{package}/")


def _skill(resource: JsonObject) -> ServerSkill | None:
    uri, meta = resource.get("uri"), resource.get("_meta")
    if not isinstance(uri, str) or not isinstance(meta, dict):
        return None
    name, plugin = _line(meta.get("skill_name")), _line(meta.get("plugin_name"))
    if meta.get("source") != "user":
        name = f"{plugin}:{name}" if plugin and name else None
    if name is None or not _is_skill_uri(uri, MAX_SKILL_URI_CHARS):
        return None
    description = resource.get("description")
    text = " ".join(description.split()) if isinstance(description, str) else ""
    return ServerSkill(uri, name, text[:MAX_DESCRIPTION_CHARS])


def _line(value: Json) -> str | None:
    """Return a name as one line; None for anything else than 1 to 64 plain characters."""
    text = " ".join(value.split()) if isinstance(value, str) else ""
    is_plain = text.isprintable() and not set("<>&") & set(text)
    return text if 0 < len(text) <= MAX_NAME_CHARS and is_plain else None


def _is_skill_uri(uri: str, limit: int) -> bool:
    """Whether it is `skill://HOST/PATH` without anything else, and with no empty or dotted part."""
    if len(uri) > limit or not uri.isascii() or not uri.isprintable() or set(" <>\\%") & set(uri):
        return False
    try:
        parts = urlsplit(uri)
    except ValueError:
        return False
    segments = parts.path.split("/")[1:]
    is_bare = uri == f"skill://{parts.netloc}{parts.path}" and not set("@:") & set(parts.netloc)
    return bool(parts.netloc and segments and is_bare) and not {"", ".", ".."} & set(segments)


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


async def list_skills(servers: ServerSet, name: str, turn_id: str) -> tuple[list[ServerSkill], int]:
    """Return the skills of a server, and how many others make no sense.

    Questions that the list leads to name the turn.

    Raises:
        McpError: the server has not started, or does not answer as it should.
    """
    server = await servers.decided(name)
    return read_skills(await list_of(server, "resources/list", "resources", turn_id))


async def read_skill_file(servers: ServerSet, name: str, uri: str, turn_id: str) -> str:
    """Return the text of a file of a listed skill, at most MAX_FILE_BYTES.

    Questions that the read leads to name the turn.

    Raises:
        McpError: see `list_skills`.
        BadSkillFile: it has no text, or too much.
    """
    result = await read_resource(servers, name, uri, None, turn_id)
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
