"""Plugins in turns: how the model is to use them, which a message names, which it may suggest.

A message names a plugin with a mention of its own, or with a link in its text. Light: reads nothing
itself.
Source: docs/plugins.md, "In turns", "Suggestions of the model".
"""

import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio.to_thread

from app_server.config.editing.file import ConfigFile
from app_server.config.values import Config, ConfigError, NotRecorded
from app_server.extensions.contract.registration import ContributionContext
from app_server.extensions.contract.turns import (
    PLUGIN_SCHEME,
    NamedPlugin,
    Presentation,
    ToolCall,
    TurnExtension,
)
from app_server.extensions.plugins.contributor import Active, Plugins, feature_is_on
from app_server.extensions.plugins.store import PluginId
from app_server.extensions.skills.folders import is_enabled
from app_server.runtime.loader import load
from protocol.turns.items import MentionUserInput, TextUserInput, UserInput

if TYPE_CHECKING:
    from protocol.integrations.suggestions import SuggestedPlugin

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
        """Return instructions about plugins, if one in force has skills or servers."""
        active = self._plugins.active(context.config, context.thread_id)
        brings = any(one.plugin.skills or one.plugin.servers for one in active)
        return INSTRUCTIONS if brings else None

    def present(self, call: ToolCall) -> Presentation | None:
        """Return None: the plugin of a call's server is in its metadata."""
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


TABLE = "tool_suggest"
"""Table of the settings, and feature, of plugins to suggest."""

MAX_OFFERED = 256
"""Plugins that `discoverables` may name; those behind them are not suggested."""

MAX_DISABLED = 1_000
"""Entries of `disabled_tools`; above, none is added."""

Verify: TypeAlias = Callable[[Sequence[str], ContributionContext], Awaitable[bool]]
"""Says whether the apps that a plugin declares are there."""


class Offers:
    """The PluginOffers of a process."""

    def __init__(self, plugins: Plugins, user_home: Path, file: ConfigFile, verify: Verify) -> None:
        """`file` is where it is written that a plugin is not to be suggested."""
        self._plugins = plugins
        self._user_home = user_home
        self._file = file
        self._verify = verify
        self._declined: set[str] = set()
        """Since the start: settings of loaded threads are older. At most MAX_OFFERED a thread."""

    def has_any(self, config: Mapping[str, Any]) -> bool:
        """Whether the settings name plugins that are neither declined nor installed."""
        return TABLE in config and bool(self._wanted(config))

    async def offered(self, config: Mapping[str, Any]) -> "Sequence[SuggestedPlugin]":
        """Return the suggested plugins that a marketplace has."""
        read, wanted = await load(_read_candidates), self._wanted(config)
        store, home = self._plugins.store, self._user_home
        return await anyio.to_thread.run_sync(read, store, config, wanted, home)

    async def is_complete(self, plugin: "SuggestedPlugin", context: ContributionContext) -> bool:
        """Whether a plugin is in the home folder, and the apps that it declares are there."""
        installed = await anyio.to_thread.run_sync(self._plugins.store.installed)
        if PluginId.parse(plugin.id) not in installed:
            return False
        app_ids = plugin.app_connector_ids
        return not app_ids or await self._verify(app_ids, context)

    async def decline(self, plugin_id: str) -> None:
        """Add a plugin to `disabled_tools` in config.toml; see PluginOffers."""
        self._declined.add(plugin_id)
        try:
            await self._file.change(partial(_with_disabled, plugin_id))
        except ConfigError as exc:
            raise NotRecorded(str(exc)) from exc

    def _wanted(self, config: Mapping[str, Any]) -> Sequence[str]:
        if not (feature_is_on(config, "plugins") and feature_is_on(config, TABLE)):
            return []
        declined = self._declined.union(_ids_in(config, "disabled_tools"))
        named = dict.fromkeys(_ids_in(config, "discoverables"))
        return [
            id_
            for id_ in list(named)[:MAX_OFFERED]
            if id_ not in declined and not self._plugins.is_installed(id_)
        ]


def _read_candidates() -> "Callable[..., list[SuggestedPlugin]]":
    from app_server.extensions.plugins.read_plugins import read_candidates

    return read_candidates


def _with_disabled(plugin_id: str, edit: Any, found: Config) -> str:
    entries = _entries(found.document, "disabled_tools")
    if plugin_id in _ids_in(found.document, "disabled_tools"):
        return found.text
    if len(entries) >= MAX_DISABLED:
        raise NotRecorded(f"tool_suggest.disabled_tools has {MAX_DISABLED} entries")
    value = [*entries, {"type": "plugin", "id": plugin_id}]
    return str(edit.set_value(found.text, (TABLE, "disabled_tools"), value))


def _entries(config: Mapping[str, Any], key: str) -> list[Any]:
    table = config.get(TABLE)
    entries = table.get(key) if isinstance(table, dict) else None
    return entries if isinstance(entries, list) else []


def _ids_in(config: Mapping[str, Any], key: str) -> list[str]:
    """Return the ids of plugins; entries of another kind, or that make no sense, are left out."""
    return [
        entry["id"]
        for entry in _entries(config, key)
        if isinstance(entry, dict)
        and entry.get("type") == "plugin"
        and isinstance(entry.get("id"), str)
    ]
