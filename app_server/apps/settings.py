"""Settings of apps in config.toml, and an administrator's requirements. No I/O.

Source: docs/config.md, "Apps".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self, TypeAlias

from app_server.apps.inventory.names import RESOURCES
from app_server.config.values import Config, ConfigView

Reviewer: TypeAlias = Literal["user", "auto_review"]

DEFAULT = "_default"
"""The table that counts for apps without one of their own."""

DEFAULT_BASE_URL = "https://chatgpt.com/backend-api"
APPROVAL_MODES = ("auto", "prompt", "writes", "approve")
SURFACES = ("direct", "deferred", "code_mode")

_REVIEWERS: Mapping[str, Reviewer] = {
    "user": "user",
    "auto_review": "auto_review",
    "guardian_subagent": "auto_review",
}


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """The settings of one tool; None: not set."""

    enabled: bool | None = None
    mode: str | None = None


@dataclass(frozen=True, slots=True)
class AppChoice:
    """The settings of one app, or of all apps without a table; None: not set."""

    enabled: bool | None = None
    destructive: bool | None = None
    open_world: bool | None = None
    tools_enabled: bool | None = None
    mode: str | None = None
    reviewer: Reviewer | None = None
    tools: Mapping[str, ToolChoice] = field(default_factory=dict)
    link_modes: Mapping[str, str] = field(default_factory=dict)
    omit_from: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class AppsSettings:
    """The settings that enable apps and name their endpoint."""

    enabled: bool
    """Without it nothing is asked and nothing is served."""
    serves_mcp: bool
    """Whether threads get servers; without it app/list and its like work all the same."""
    auth_elicitation: bool
    """Whether upstream may ask the user."""
    base_url: str
    sku: str | None
    """The product that upstream is asked for."""
    includes_instructions: bool
    """Whether the model is shown how users name apps."""

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read the settings in force, as config.toml has them.

        Raises:
            ConfigError: a value does not fit.
        """
        view = Config(dict(config)).view()
        features = view.at("features")
        gate = "apps" if "apps" in features else "connectors"
        bundle = view.at("mcp_servers").at(RESOURCES)
        orchestrator = view.at("orchestrator").at("mcp")
        return cls(
            enabled=features.boolean(gate, default=True),
            serves_mcp=orchestrator.boolean("enabled", default=True)
            and bundle.boolean("enabled", default=True),
            auth_elicitation=features.boolean("auth_elicitation", default=True),
            base_url=view.string("chatgpt_base_url") or DEFAULT_BASE_URL,
            sku=(view.string("apps_mcp_product_sku") or "").strip() or None,
            includes_instructions=view.boolean("include_apps_instructions", default=True),
        )


def read_apps(view: ConfigView) -> Mapping[str, AppChoice]:
    """Read the table `apps`, by connector id and `_default`.

    Raises:
        ConfigError: a value does not fit.
    """
    return {name: _read_app(table) for name, table in view.at("apps").tables()}


def read_reviewers(demands: ConfigView) -> frozenset[Reviewer] | None:
    """Read which reviewers an administrator allows; None: all of them.

    Raises:
        ConfigError: it is not a list of words.
    """
    allowed = demands.strings("allowed_approvals_reviewers")
    if allowed is None:
        return None
    return frozenset(_REVIEWERS[word] for word in allowed if word in _REVIEWERS)


def _read_app(view: ConfigView) -> AppChoice:
    links = dict(view.at("links").tables())
    for link in links.values():
        _read_reviewer(link)
    return AppChoice(
        enabled=view.boolean("enabled", None),
        destructive=view.boolean("destructive_enabled", None),
        open_world=view.boolean("open_world_enabled", None),
        tools_enabled=view.boolean("default_tools_enabled", None),
        mode=view.choice("default_tools_approval_mode", APPROVAL_MODES),
        reviewer=_read_reviewer(view),
        tools={
            name: ToolChoice(
                table.boolean("enabled", None), table.choice("approval_mode", APPROVAL_MODES)
            )
            for name, table in view.at("tools").tables()
        },
        link_modes={
            name: mode
            for name, link in links.items()
            if (mode := link.choice("default_tools_approval_mode", APPROVAL_MODES)) is not None
        },
        omit_from=view.choices("omit_tools_from", SURFACES),
    )


def _read_reviewer(view: ConfigView) -> Reviewer | None:
    word = view.choice("approvals_reviewer", tuple(_REVIEWERS))
    return None if word is None else _REVIEWERS[word]
