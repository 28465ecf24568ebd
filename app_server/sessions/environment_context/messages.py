"""Environment messages to the model of one loaded thread, and the times at which they are sent.

Files of instructions are read when the thread is loaded and when its working directory becomes
another one. Whatever the history does not have yet is sent before the input of a turn, and, where
the settings of a running turn change, before its next request.
Source: docs/wire.md, "What the model is sent"; docs/environments.md, "Threads in an environment".
"""

from collections.abc import Mapping, Sequence

import anyio

from app_server.host.environments import Environments, UnknownEnvironment
from app_server.models.prompt.environment_context import EnvironmentContext, KnownContext, news
from app_server.sessions.environment_context.instructions import ThreadInstructions
from app_server.sessions.environment_context.machine import date_of, shell_name
from app_server.sessions.environment_context.skills import ThreadSkills
from app_server.turns.context import ThreadContext
from protocol.log.rollout import LOCAL, HistoryAppended, Settings
from protocol.model import JsonObject

ASK_S = 2.0
"""For all other machines together: a turn does not wait longer for one that is away."""


class EnvironmentMessages:
    """The messages that show the model of one loaded thread where it works."""

    def __init__(
        self,
        context: ThreadContext,
        instructions: ThreadInstructions,
        skills: ThreadSkills,
    ) -> None:
        """Show what is read of files of instructions and of skills."""
        self.skills = skills
        self._context = context
        self._has_proxy = context.settings.network_proxy is not None
        self._instructions = instructions
        self._shell = shell_name()
        self._environments = context.server.environments
        self._shells: Mapping[str, str] = {}
        self._in_history = KnownContext()
        self._sent_settings: Settings | None = None
        """The settings that the model was shown last, since the thread was loaded."""

    async def news(self, settings: Settings) -> list[JsonObject]:
        """Make the messages for a turn that begins with these settings."""
        if not self._instructions.are_of(settings):
            await self._instructions.read(settings)
            for warning in self._instructions.take_warnings():
                self._context.clients.warning(warning)
        await self.skills.read(settings)
        self._shells = await _shells_of(self._environments, settings)
        self._sent_settings = settings
        state = self._context.log.state
        waiting = [item for entry in state.queued for item in entry.items]
        known = self._in_history.look(state.history, waiting)
        return news(self._values(settings), known)

    def all_of(self, settings: Settings) -> list[JsonObject]:
        """Make the messages for a model that knows nothing of the thread."""
        return news(self._values(settings), {})

    async def add_changes(self) -> None:
        """Send the model what changed in the running turn.

        Raises:
            OSError: the disk refused.
        """
        settings = self._context.log.state.in_force
        if self._sent_settings is not None and _place(self._sent_settings) == _place(settings):
            return
        items: Sequence[JsonObject] = await self.news(settings)
        if items:
            record = HistoryAppended(at_ms=self._context.clock.now_ms(), items=list(items))
            await self._context.log.append(record, sync=False)

    def _values(self, settings: Settings) -> EnvironmentContext:
        return EnvironmentContext(
            settings=settings,
            instructions=self._instructions.text,
            skills=self.skills.text(),
            shell=self._shell,
            shells=self._shells,
            date=date_of(self._context.clock.now_ms()),
            timezone=self._instructions.timezone,
            has_proxy=self._has_proxy,
        )


def _place(settings: Settings) -> tuple[object, ...]:
    return (
        settings.cwd,
        settings.roots,
        settings.sandbox_policy,
        settings.approval_policy,
        settings.without_environment,
        settings.environments,
        settings.mode,
        settings.mode_instructions,
    )


async def _shells_of(environments: Environments, settings: Settings) -> dict[str, str]:
    """Return the names of the shells of a thread's other machines, by environment.

    One that is not known, or does not answer in 2 s, is left out.
    """
    ids = [one.environment_id for one in settings.working_folders if one.environment_id != LOCAL]
    shells: dict[str, str] = {}
    if not ids:
        return shells

    async def ask(environment_id: str) -> None:
        try:
            shell, _ = await environments.info(environment_id)
        except (OSError, UnknownEnvironment):
            return
        shells[environment_id] = shell.name

    with anyio.move_on_after(ASK_S):
        async with anyio.create_task_group() as tasks:
            for environment_id in ids:
                tasks.start_soon(ask, environment_id)
    return shells
