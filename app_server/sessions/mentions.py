"""Mentions in the input of a turn, and their text for the model once servers have started.

Source: docs/plugins.md, "In turns"; docs/skills.md, "Skills of MCP servers".
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio

from app_server.extensions.contract.registration import RuntimeMetadata
from app_server.extensions.contract.turns import NamedPlugin
from app_server.extensions.skills.folders import FoundSkill
from app_server.extensions.skills.in_turns import MAX_NAMED, SkillNames
from app_server.mcp.servers import skills as server_skills
from app_server.mcp.servers.skills import ServerSkill
from app_server.mcp.servers.waits import WantedServers
from app_server.mcp_wire.errors import McpError
from app_server.models.prompt.request import message
from app_server.models.prompt.user_input import TurnInput, skill_message
from app_server.sessions.environment_messages import ThreadSkills
from app_server.turns.context import ThreadContext
from app_server.turns.recorder import TurnRecorder
from protocol.model import JsonObject
from protocol.turns.items import MentionUserInput, TextUserInput, UserInput

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NamedByInput:
    """Plugins, MCP servers and skills that a user's input names."""

    plugins: Sequence[NamedPlugin] = ()
    """Plugins to describe to the model, once it is known which tools they have."""
    wanted_servers: WantedServers = field(default_factory=WantedServers)
    """Servers that the first request of the turn waits for."""
    skills: SkillNames = field(default_factory=SkillNames)
    """Names that may be those of skills of MCP servers."""


NOTHING_NAMED = NamedByInput()


SERVER_SCHEME = "mcp://"


@dataclass(frozen=True, slots=True, kw_only=True)
class InputMentions:
    """The mentions in the input of one loaded thread."""

    context: ThreadContext
    skills: ThreadSkills

    def named_by(self, user_input: TurnInput, skills: Sequence[FoundSkill]) -> NamedByInput:
        """Return what the input that begins a turn names; `skills` are those that it uses."""
        content = user_input.content
        if not skills and all(map(_names_nothing, content)):
            return NOTHING_NAMED
        named = self.context.server.plugins.mentions.named
        plugins = named(content, self.context.servers.context())
        paths = [part.path for part in content if isinstance(part, MentionUserInput)]
        reads_skills = self.context.settings.reads_server_skills
        servers = [
            path.removeprefix(SERVER_SCHEME) for path in paths if path.startswith(SERVER_SCHEME)
        ]
        elsewhere = self.skills.elsewhere(user_input) if reads_skills else SkillNames()
        # Of a plugin, it is enough that one of its skills was named.
        plugin_ids = {plugin.id for plugin in plugins}
        plugin_ids |= {one.plugin_id for one in skills if one.plugin_id is not None}
        wanted = WantedServers(
            frozenset(servers), frozenset(plugin_ids), with_skills=bool(elsewhere)
        )
        return NamedByInput(plugins, wanted, elsewhere)

    async def add_messages(self, recorder: TurnRecorder, named: NamedByInput) -> None:
        """Send the model what was named and is known now, behind the input.

        That is the text of skills of MCP servers, which takes at most 10 s, and what plugins have.

        Raises:
            OSError: the disk refused.
        """
        items = []
        if named.skills:
            items += await self._server_skills(recorder.turn_id, named.skills)
        if named.plugins:
            items += [message("developer", text) for text in self._texts(named.plugins)]
        await recorder.remember(*items)

    async def _server_skills(self, turn_id: str, names: SkillNames) -> list[JsonObject]:
        """Read the named skills of servers, and make the messages that show them.

        What cannot be read is left out, with a warning.
        """
        servers, warn = self.context.servers.live(), self.context.clients.warning
        server = server_skills.skill_server(servers)
        if server is None:
            return []
        messages: list[JsonObject] = []

        def left_out(shown: str, why: McpError) -> None:
            logger.info("skills of %s cannot be read: %s", server, type(why).__name__)
            warn(f"skills were left out: {shown} cannot be read: {why}")

        shown = ", ".join(f"`{name}`" for name in (*names.plain, *names.paths)[:MAX_NAMED])
        try:
            with anyio.fail_after(server_skills.ANSWER_S):
                listed, _ = await server_skills.list_skills(servers, server, turn_id)
                for skill in _chosen(listed, names):
                    shown = f"`{skill.name}`"
                    try:
                        text = await server_skills.read_skill_file(
                            servers, server, skill.main_resource, turn_id
                        )
                    except McpError as exc:
                        left_out(shown, exc)
                        continue
                    messages.append(skill_message(skill.name, skill.main_resource, _page(text)))
        except TimeoutError:
            warn(f"skills were left out: {shown} did not come within {server_skills.ANSWER_S:g} s")
        except McpError as exc:
            left_out(shown, exc)
        return messages

    def _texts(self, plugins: Sequence[NamedPlugin]) -> list[str]:
        servers = self.context.servers.live()
        metadata = {tool.visible.namespace: tool.config.metadata for tool in servers.tools().tools}
        texts = [
            plugin_text(
                plugin,
                [name for name, said in metadata.items() if _is_of(said, plugin)],
                is_searched=servers.settings.surface == "deferred",
            )
            for plugin in plugins
        ]
        return [text for text in texts if text is not None]


def _names_nothing(part: UserInput) -> bool:
    """Whether a part has no mention, nor a text with the sign that one begins with."""
    return isinstance(part, TextUserInput) and "$" not in part.text and "@" not in part.text


def _is_of(said: RuntimeMetadata, plugin: NamedPlugin) -> bool:
    """Whether a server is one of a plugin: brought by it, or registered under its name."""
    if said.plugin_id is not None:
        return said.plugin_id == plugin.id
    return plugin.display_name in said.plugin_display_names


def _chosen(listed: Sequence[ServerSkill], names: SkillNames) -> list[ServerSkill]:
    by_path = [one for one in listed if {one.package, one.main_resource} & set(names.paths)]
    by_name = []
    for name in names.plain:
        matching = [one for one in listed if one.name == name]
        if len(matching) == 1 and matching[0] not in by_path:
            by_name += matching
    return [*by_path, *by_name][:MAX_NAMED]


def _page(text: str) -> str:
    if len(text) <= server_skills.PAGE_CHARS:
        return text
    rest = f"[… the rest is read with `skills.read` and the cursor `{server_skills.PAGE_CHARS}`]"
    return f"{text[: server_skills.PAGE_CHARS]}\n{rest}"


MAX_NAMESPACES = 64
"""Of one plugin; of more it is only said how many."""


def plugin_text(plugin: NamedPlugin, namespaces: Sequence[str], *, is_searched: bool) -> str | None:
    """Say which skills and tools a plugin has; None if it has none.

    `namespaces` are those of its tools, as the model calls them; `is_searched` says that the model
    has to find them with `tool_search` first.
    """
    lines = []
    if plugin.skills_prefix is not None:
        lines.append(f"- Skills whose names begin with `{plugin.skills_prefix}:`.")
    if namespaces:
        shown = ", ".join(f"`{name}`" for name in namespaces[:MAX_NAMESPACES])
        left = len(namespaces) - MAX_NAMESPACES
        more = f" and {left} more" if left > 0 else ""
        how = "; find them with `tool_search`" if is_searched else ""
        lines.append(f"- Tools of its MCP servers, in the namespaces {shown}{more}{how}.")
    if not lines:
        return None
    name = " ".join(plugin.display_name.split())
    first = f"The user named the plugin `{name}`. For this message use what it brings first:"
    return "\n".join((first, *lines))
