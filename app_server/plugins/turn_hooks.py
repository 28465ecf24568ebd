"""What plugins add to turns: texts for the model on how to use them.

Source: docs/plugins.md, "In turns".
"""

from collections.abc import Collection

from app_server.extension.hooks import Presentation, ToolCall, TurnHooks
from app_server.extension.registration import ContributionContext
from app_server.plugins.contributor import Plugins

INSTRUCTIONS = """\
<plugins_instructions>
The user has plugins. A plugin brings skills and tools, and cannot be called itself. The names of \
its skills begin with its own name and a colon; the description of a tool says which plugins it \
is part of. A user names a plugin as [@name](plugin://id): for that message use what the plugin \
brings before anything else that would do as well. If nothing that it brings fits or can be \
called, say so briefly and do without it.
</plugins_instructions>"""


class PluginHooks(TurnHooks):
    """The TurnHooks of plugins."""

    def __init__(self, plugins: Plugins) -> None:
        self._plugins = plugins

    def instructions(
        self, context: ContributionContext, tools: Collection[tuple[str, str]]
    ) -> str | None:
        """Return what the model is shown of plugins, if one in force has skills or servers."""
        active = self._plugins.active(context.config, context.thread_id)
        brings = any(one.plugin.skills or one.plugin.servers for one in active)
        return INSTRUCTIONS if brings else None

    def present(self, call: ToolCall) -> Presentation | None:
        """Show nothing: the plugin of a call's server is in its metadata."""
        return None
