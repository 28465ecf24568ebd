"""Skills that an MCP server has among its resources. No I/O.

A skill is a resource of the type `mcp/skill`; its files are resources below its URI.
Source: docs/skills.md, "Skills of MCP servers".
"""

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

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
