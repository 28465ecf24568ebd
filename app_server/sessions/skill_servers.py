"""Offers to install the MCP servers that the skills of a turn need and its thread does not have.

Source: docs/skills.md, "Servers that skills need".
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio

from app_server.config.requirements import requirements_of
from app_server.config.values import Config, ConfigError, NotRecorded
from app_server.extensions.skills.in_turns import NeededServer
from app_server.mcp.catalog.config import VALID_NAME, StdioTransport
from app_server.mcp.catalog.tables import parse_server
from app_server.turns.approval.tools import writes_freely
from app_server.turns.context import ThreadContext
from protocol.turns.approvals import (
    ToolRequestUserInputOption,
    ToolRequestUserInputParams,
    ToolRequestUserInputQuestion,
    ToolRequestUserInputResponse,
)

logger = logging.getLogger(__name__)

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
