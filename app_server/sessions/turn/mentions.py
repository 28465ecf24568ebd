"""What the input of a turn names, and what the model is sent of it once servers have started.

Source: docs/plugins.md, "In turns".
"""

from collections.abc import Callable, Sequence

from app_server.extension.mentions import NamedPlugin, PluginMentions
from app_server.extension.metadata import RuntimeMetadata
from app_server.runtime.clock import Clock
from app_server.sessions.mcp_servers import ThreadServers
from app_server.sessions.surroundings.surroundings import ThreadSurroundings
from app_server.sessions.turn.server_skills import named_server_skills
from app_server.skills.instructions import SkillNames
from app_server.threads.log.live import LiveThread
from app_server.turns.model.prompt.plugins import plugin_text
from app_server.turns.model.prompt.request import message
from app_server.turns.model.prompt.user_input import TurnInput
from app_server.turns.named_by_input import NOTHING_NAMED, NamedByInput
from app_server.turns.run import TurnRun
from protocol.items import MentionUserInput
from protocol.rollout import HistoryAppended

SERVER_SCHEME = "mcp://"


class InputMentions:
    """The mentions in the input of one loaded thread."""

    def __init__(
        self,
        thread: LiveThread,
        servers: ThreadServers,
        surroundings: ThreadSurroundings,
        plugins: PluginMentions | None,
        clock: Clock,
        warn: Callable[[str], None],
        *,
        reads_server_skills: bool,
    ) -> None:
        """`plugins` None: there are none; `warn` notifies all clients of the thread."""
        self._thread = thread
        self._servers = servers
        self._surroundings = surroundings
        self._plugins = plugins
        self._clock = clock
        self._warn = warn
        self._reads_server_skills = reads_server_skills

    def named_by(self, user_input: TurnInput) -> NamedByInput:
        """Return what the input that begins a turn names; its skills have been read."""
        content = user_input.content
        context = self._servers.context()
        plugins = () if self._plugins is None else self._plugins.named(content, context)
        of_skills = self._surroundings.plugins_of_skills(user_input)
        paths = [part.path for part in content if isinstance(part, MentionUserInput)]
        servers = [path.removeprefix(SERVER_SCHEME) for path in paths if _is_server(path)]
        return NamedByInput(
            plugins=plugins,
            plugin_ids=frozenset(of_skills).union(plugin.id for plugin in plugins),
            servers=frozenset(servers),
            skills=self._surroundings.skills_elsewhere(user_input)
            if self._reads_server_skills
            else SkillNames(),
        )

    async def add_messages(self, run: TurnRun) -> None:
        """Send the model what was named and is known now; once a turn, behind its input.

        That is the text of skills of MCP servers, which takes at most 10 s, and what plugins have.

        Raises:
            OSError: the disk refused.
        """
        named, run.named = run.named, NOTHING_NAMED
        items = []
        if named.skills:
            items += await named_server_skills(self._servers.set, named.skills, self._warn)
        if named.plugins:
            items += [message("developer", text) for text in self._texts(named.plugins)]
        if items:
            record = HistoryAppended(at_ms=self._clock.now_ms(), items=items)
            await self._thread.append(record, sync=False)

    def _texts(self, plugins: Sequence[NamedPlugin]) -> list[str]:
        servers = self._servers.set
        metadata = {tool.visible.namespace: tool.config.metadata for tool in servers.tools().tools}
        texts = [
            plugin_text(
                plugin,
                [name for name, said in metadata.items() if _is_of(said, plugin)],
                is_searched=servers.surface == "deferred",
            )
            for plugin in plugins
        ]
        return [text for text in texts if text is not None]


def _is_server(path: str) -> bool:
    return path.startswith(SERVER_SCHEME)


def _is_of(said: RuntimeMetadata, plugin: NamedPlugin) -> bool:
    """Whether a server is one of a plugin: brought by it, or registered under its name."""
    if said.plugin_id is not None:
        return said.plugin_id == plugin.id
    return plugin.display_name in said.plugin_display_names
