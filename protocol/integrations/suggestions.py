"""How a model suggests a plugin, and what clients are asked then: names and members as in Codex.

Source: docs/plugins.md, "Suggestions of the model".
"""

from typing import Literal

from protocol.model import SnakeModel

SUGGESTION_SERVER = "codex_apps"
"""The `serverName` of the question, by which clients know it; no MCP server is asked."""


class SuggestedPlugin(SnakeModel):
    """A plugin that could be installed, as the model is told of it."""

    id: str
    """`name@marketplace`."""
    name: str
    description: str | None = None
    tool_type: Literal["plugin"] = "plugin"
    has_skills: bool = False
    mcp_server_names: list[str] = []
    app_connector_ids: list[str] = []
    """Ids of the apps that it declares."""


class SuggestedPlugins(SnakeModel):
    """What `list_available_plugins_to_install` returns."""

    tools: list[SuggestedPlugin]
    """By name, then by id."""


class SuggestionMeta(SnakeModel):
    """`_meta` of the question whether the user wants a plugin."""

    codex_approval_kind: Literal["tool_suggestion"] = "tool_suggestion"
    persist: Literal["always"] = "always"
    """An answer `decline` whose `_meta.persist` says the same ends these questions."""
    tool_type: Literal["plugin"] = "plugin"
    suggest_type: Literal["install"] = "install"
    suggest_reason: str
    tool_id: str
    """Of the plugin: `name@marketplace`."""
    tool_name: str
    suggestion_id: str
    app_connector_ids: list[str]


class SuggestionResult(SnakeModel):
    """What `request_plugin_install` returns."""

    completed: bool
    """The plugin is installed, and every app that it declares is there."""
    user_confirmed: bool
    tool_type: Literal["plugin"] = "plugin"
    action_type: Literal["install"] = "install"
    tool_id: str
    tool_name: str
    suggest_reason: str
