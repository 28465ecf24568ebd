"""Mentions in the input of a turn, and their text for the model once servers have started.

Behind them the offers to install the MCP servers that the skills of a turn need.
Source: docs/plugins.md, "In turns"; docs/skills.md, "Skills of MCP servers", "Servers that skills
need".
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio

from app_server.config.requirements import requirements_of
from app_server.config.values import Config, ConfigError, NotRecorded
from app_server.extensions.contract.registration import RuntimeMetadata
from app_server.extensions.contract.turns import NamedPlugin
from app_server.extensions.skills.folders import FoundSkill
from app_server.extensions.skills.in_turns import MAX_NAMED, NeededServer, SkillNames
from app_server.mcp.catalog.config import VALID_NAME, StdioTransport
from app_server.mcp.catalog.tables import parse_server
from app_server.mcp.servers import skills as server_skills
from app_server.mcp.servers.skills import ServerSkill
from app_server.mcp.servers.waits import WantedServers
from app_server.mcp_wire.errors import McpError
from app_server.models.prompt.request import message
from app_server.models.prompt.user_input import TurnInput, skill_message
from app_server.sessions.environment_messages import ThreadSkills
from app_server.turns.approval.tools import writes_freely
from app_server.turns.context import ThreadContext
from app_server.turns.recorder import TurnRecorder
from protocol.model import JsonObject
from protocol.turns.approvals import (
    ToolRequestUserInputOption,
    ToolRequestUserInputParams,
    ToolRequestUserInputQuestion,
    ToolRequestUserInputResponse,
)
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


METHOD = "item/tool/requestUserInput"
QUESTION_ID = "skill_mcp_dependency_install"
INSTALL = "Install"
SKIP = "Continue anyway"

ANSWER_S = 600.0
"""For the user to answer; then the turn goes on without the servers."""

MAX_SERVERS = 32
"""MCP servers that one turn offers to install; further ones are left out."""

MAX_SHOWN_CHARS = 256
"""Of a command or a URL."""


@dataclass(slots=True)
class SkillServers:
    """The offers of one loaded thread."""

    context: ThreadContext
    _declined: set[tuple[str, str]] = field(default_factory=set, init=False)

    async def offer(self, turn_id: str, needed: Sequence[NeededServer]) -> None:
        """Ask, and install what the user wants; the next request of the turn has it.

        A turn with the approval policy `never` and no sandbox installs without a question. Without
        subscribers nobody is asked. What cannot be written is named in a `warning`.
        """
        missing = self._missing(needed)
        if not missing or not self.context.settings.installs_skill_servers:
            return
        if not self._may_install_unasked():
            if not self.context.clients.has_subscribers:
                return
            if not await self._is_wanted(turn_id, missing):
                return
        try:
            await self._install(missing)
        except (ConfigError, NotRecorded) as exc:
            self.context.clients.warning(f"MCP servers that skills need are not installed: {exc}")

    async def _install(self, servers: Sequence[NeededServer]) -> None:
        """Write servers into config.toml, from which all threads take them.

        Raises:
            ConfigError, NotRecorded: nothing was written.
        """
        # What cannot be read now could not be taken over after the write either.
        await self.context.server.configuration.read()
        await self.context.server.config_file.change(partial(_with_servers, servers))

    def _missing(self, needed: Sequence[NeededServer]) -> list[NeededServer]:
        there = self.context.servers.live().servers
        known = {_identity(server.config.transport) for server in there.values()} | self._declined
        missing: dict[str, NeededServer] = {}
        for server in needed:
            if (server.key, server.value) in known or server.name in there:
                continue
            if not self._is_usable(server):
                logger.warning("MCP server %r of a skill cannot be used", server.name)
                continue
            missing.setdefault(server.name, server)
        return list(missing.values())[:MAX_SERVERS]

    def _is_usable(self, server: NeededServer) -> bool:
        """Whether it could be configured, and an administrator lets it run."""
        try:
            demanded = requirements_of(self.context.servers.config).servers
            parsed = parse_server(server.name, server.table, demanded)
        except ConfigError:
            return False
        return parsed.allowed and VALID_NAME.fullmatch(server.name) is not None

    def _may_install_unasked(self) -> bool:
        settings = self.context.log.state.in_force
        return settings.approval_policy == "never" and writes_freely(settings)

    async def _is_wanted(self, turn_id: str, missing: Sequence[NeededServer]) -> bool:
        params = ToolRequestUserInputParams(
            thread_id=self.context.log.id,
            turn_id=turn_id,
            item_id=f"mcp-deps-{turn_id}",
            questions=[_question(missing)],
            is_blocking=True,
        )
        with (
            anyio.move_on_after(ANSWER_S) as limit,
            self.context.status.waiting_on("waitingOnUserInput"),
        ):
            answer, _ = await self.context.clients.ask(METHOD, params)
        if limit.cancelled_caught:
            return False
        chosen: Sequence[str] = ()
        if isinstance(answer, ToolRequestUserInputResponse) and QUESTION_ID in answer.answers:
            chosen = answer.answers[QUESTION_ID].answers
        if INSTALL in chosen:
            return True
        self._declined |= {(server.key, server.value) for server in missing}
        return False


def _identity(transport: object) -> tuple[str, str]:
    if isinstance(transport, StdioTransport):
        return "command", transport.command
    return "url", getattr(transport, "url", "")


def _question(missing: Sequence[NeededServer]) -> ToolRequestUserInputQuestion:
    shown = ", ".join(
        f"{server.name} ({server.value[:MAX_SHOWN_CHARS]})"
        for server in sorted(missing, key=lambda server: server.name)
    )
    return ToolRequestUserInputQuestion(
        id=QUESTION_ID,
        header="Install MCP servers?",
        question=f"The skills that you named need MCP servers that you do not have: {shown}.",
        options=[
            ToolRequestUserInputOption(
                label=INSTALL, description="Add them to config.toml, and start them now."
            ),
            ToolRequestUserInputOption(
                label=SKIP,
                description="Go on without them; this thread does not ask again until it is loaded "
                "anew.",
            ),
        ],
    )


def _with_servers(servers: Sequence[NeededServer], edit: Any, found: Config) -> str:
    """Return the text of config.toml with servers that it does not have yet."""
    text, there = found.text, found.document.get("mcp_servers", {})
    for server in servers:
        if server.name not in there:
            for key, value in server.table.items():
                text = edit.set_value(text, ("mcp_servers", server.name, key), value)
    return str(text)
