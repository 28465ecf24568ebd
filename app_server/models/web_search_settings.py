"""Settings of web search, from the configuration.

Source: docs/config.md, "Models".
"""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias, cast

from app_server.config.values import ConfigView
from protocol.model import JsonObject

WebSearchMode: TypeAlias = Literal["disabled", "cached", "indexed", "live"]

MODES = ("disabled", "cached", "indexed", "live")
SIZES = ("low", "medium", "high")
PLACES = ("country", "region", "city", "timezone")


@dataclass(frozen=True, slots=True)
class WebSearchSettings:
    """Mode and members of the declaration of the search."""

    mode: WebSearchMode | None = None
    """None leaves it to the model and its provider."""
    members: JsonObject = field(default_factory=dict)
    """Of the declaration: `filters`, `user_location`, `search_context_size`."""


def read_web_search(view: ConfigView) -> WebSearchSettings:
    """Read `web_search` and `[tools.web_search]`, which may be a boolean.

    Raises:
        ConfigError: a value has the wrong type.
    """
    mode = view.choice("web_search", MODES)
    tools = view.at("tools")
    if isinstance(tools.table.get("web_search"), bool):
        is_wanted = tools.boolean("web_search", default=False)
        return WebSearchSettings(_mode(mode or ("live" if is_wanted else "disabled")))
    table = tools.at("web_search")
    members: JsonObject = {}
    if domains := table.strings("allowed_domains"):
        members["filters"] = {"allowed_domains": domains}
    location = table.at("location")
    if place := {key: value for key in PLACES if (value := location.string(key)) is not None}:
        members["user_location"] = {"type": "approximate", **place}
    if size := table.choice("context_size", SIZES):
        members["search_context_size"] = size
    return WebSearchSettings(_mode(mode), members)


def _mode(name: str | None) -> WebSearchMode | None:
    return cast(WebSearchMode | None, name)
