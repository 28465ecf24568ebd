"""Plugins in turns: how the model is to use them, and which of them a message names.

A message names a plugin with a mention of its own, or with a link in its text.

Source: docs/plugins.md, "In turns".
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from app_server.extensions.contract.registration import ContributionContext
from app_server.extensions.contract.turns import (
    PLUGIN_SCHEME,
    NamedPlugin,
    Presentation,
    ToolCall,
    TurnExtension,
)
from app_server.extensions.plugins.contributor import Active, Plugins
from app_server.extensions.skills.folders import is_enabled
from protocol.turns.items import MentionUserInput, TextUserInput, UserInput

INSTRUCTIONS = """\
<plugins_instructions>
The user has plugins. A plugin brings skills and tools, and cannot be called itself. The names of \
its skills begin with its own name and a colon; the description of a tool says which plugins it \
is part of. A user names a plugin as [@name](plugin://id): for that message use what the plugin \
brings before anything else that would do as well. If nothing that it brings fits or can be \
called, say so briefly and do without it.
</plugins_instructions>"""


MAX_NAMED = 16
"""Plugins of one message; those behind them are passed over."""

_LINK = re.compile(r"\[@[^\[\]\n]{1,256}\]\(" + PLUGIN_SCHEME + r"([^()\s]{1,512})\)")


class PluginsInTurns(TurnExtension):
    """The TurnExtension of plugins, and their PluginMentions."""

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

    # For messages, see PluginMentions.

    def named(
        self, content: Sequence[UserInput], context: ContributionContext
    ) -> Sequence[NamedPlugin]:
        """Return them in the order in which they are in force."""
        ids = set(_ids(content))
        if not ids:
            return ()
        named: dict[str, NamedPlugin] = {}
        for active in self._plugins.active(context.config, context.thread_id):
            if active.id in ids and active.id not in named:
                prefix = active.plugin.name if _has_skills(active, context.config) else None
                named[active.id] = NamedPlugin(active.id, active.plugin.display_name, prefix)
        return list(named.values())[:MAX_NAMED]


def _ids(content: Sequence[UserInput]) -> Iterator[str]:
    for part in content:
        if isinstance(part, MentionUserInput) and part.path.startswith(PLUGIN_SCHEME):
            yield part.path.removeprefix(PLUGIN_SCHEME)
        elif isinstance(part, TextUserInput):
            yield from _LINK.findall(part.text)


def _has_skills(active: Active, config: Mapping[str, Any]) -> bool:
    skills = active.plugin.named_skills()
    return any(is_enabled(skill.name, skill.file, config) for skill in skills)
