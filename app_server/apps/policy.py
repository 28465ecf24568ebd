"""Policy of apps' tools: enabled, approval mode, reviewer; and registrations. No I/O.

Settings of apps are turned into ordinary ones of MCP servers; nobody else reads them.
Source: docs/config.md, "Apps"; docs/apps.md, "Registrations".
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Protocol, Self

from pydantic import SecretStr

from app_server.apps.inventory.inventory import AppTool, Connector
from app_server.apps.inventory.names import RESOURCES, Route, stripped_title
from app_server.apps.presentation import PresentedTools
from app_server.apps.settings import (
    DEFAULT,
    AppChoice,
    Reviewer,
    ToolChoice,
    read_apps,
    read_reviewers,
)
from app_server.config.values import Config
from app_server.extensions.contract.registration import (
    Manifest,
    Owner,
    Registration,
    RuntimeMetadata,
    Telemetry,
)
from protocol.model import Json

MAX_PLUGIN_NAMES = 64
"""Of one connector; sorted, so the same ones always."""

_NOTHING = AppChoice()
_NO_TOOL = ToolChoice()


class AppsPolicy:
    """The immutable policy from settings and the administrator's requirements."""

    def __init__(
        self,
        apps: Mapping[str, AppChoice],
        managed: Mapping[str, AppChoice],
        reviewers: frozenset[Reviewer] | None,
    ) -> None:
        """Keep the tables as read; `reviewers` are the permitted ones, None: all."""
        self._apps = {id_: choice for id_, choice in apps.items() if id_ != DEFAULT}
        self._default = apps.get(DEFAULT, _NOTHING)
        self._managed = managed
        self._reviewers = reviewers

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AppsPolicy) and self._parts == other._parts

    def __hash__(self) -> int:
        return hash(self._reviewers)

    @property
    def _parts(self) -> tuple[object, ...]:
        return self._apps, self._default, self._managed, self._reviewers

    @classmethod
    def read(cls, config: Mapping[str, Any], requirements: Mapping[str, Any] | None) -> Self:
        """Read the table `apps` of config.toml, and of the administrator's requirements.

        Raises:
            ConfigError: a value does not fit.
        Source: docs/config.md, "Apps".
        """
        demands = Config(dict(requirements or {})).view()
        settings = Config(dict(config)).view()
        return cls(read_apps(settings), read_apps(demands), read_reviewers(demands))

    def app_enabled(self, connector_id: str) -> bool:
        """Whether an app is switched on; one with a table of its own is, unless that says no."""
        if self._managed.get(connector_id, _NOTHING).enabled is False:
            return False
        return self._apps.get(connector_id, self._default).enabled is not False

    def enabled(self, connector: Connector, tool: AppTool) -> bool:
        """Whether a tool is enabled: by its own setting, its app's, else by its annotations."""
        if not self.app_enabled(connector.id):
            return False
        app = self._of(connector)
        chosen = _first(_tool_choice(app, connector, tool).enabled, app.tools_enabled)
        if chosen is not None:
            return chosen
        destructive = _first(app.destructive, self._default.destructive, True)
        open_world = _first(app.open_world, self._default.open_world, True)
        return bool(
            (destructive or not _hint(tool, "destructiveHint"))
            and (open_world or not _hint(tool, "openWorldHint"))
        )

    def callable(self, connector: Connector) -> bool:
        """Whether the model can call a tool of an app that does more than link it."""
        return any(
            self.enabled(connector, tool)
            for tool in connector.tools
            if tool.visible_to_model and not tool.synthetic
        )

    def mode(self, connector: Connector, tool: AppTool) -> str:
        """Return the approval mode of a tool: managed, its own, its link's, its app's."""
        app = self._of(connector)
        managed = self._managed.get(connector.id, _NOTHING).tools.get(tool.name, _NO_TOOL)
        return (
            managed.mode
            or _tool_choice(app, connector, tool).mode
            or (app.link_modes.get(tool.link_id or "") if app.link_modes else None)
            or self.app_mode(connector)
        )

    def app_mode(self, connector: Connector) -> str:
        """Return the approval mode of tools without an own one: the app's, else `auto`."""
        return self._of(connector).mode or self._default.mode or "auto"

    def reviewer(self, connector: Connector) -> Reviewer | None:
        """Return the reviewer of approvals; None: that of the thread."""
        chosen = self._of(connector).reviewer or self._default.reviewer
        is_allowed = self._reviewers is None or chosen in self._reviewers
        return chosen if is_allowed else None

    def omitted_surfaces(self, connector: Connector) -> Sequence[str]:
        """Return where the model does not see the tools of an app."""
        return self._of(connector).omit_from

    def _of(self, connector: Connector) -> AppChoice:
        return self._apps.get(connector.id, _NOTHING)


class ServedRoutes(Protocol):
    """A generation, as far as registrations need it."""

    @property
    def routes(self) -> Collection[Route]:
        """The connectors with a route."""

    @property
    def owner(self) -> Owner:
        """The owner whose leases keep the routes served; one for all routes."""

    def url(self, server: str) -> str:
        """Return where a server is reached."""

    def bearer(self, server: str) -> SecretStr:
        """Return the bearer token of the route."""


@dataclass(frozen=True, slots=True)
class Use:
    """The inputs in which one thread's registrations differ from another's."""

    policy: AppsPolicy
    origin: str
    """Of the hosted endpoint."""
    plugin_names: Mapping[str, Sequence[str]]
    """Display names of plugins by connector id."""


def registrations(
    generation: ServedRoutes,
    use: Use,
    presented: Mapping[str, PresentedTools],
    manifests: Mapping[str, Manifest],
) -> list[Registration]:
    """Turn a generation into registrations: the server of resources first, then sorted by name.

    `presented` is by server, `manifests` is what `make_manifests` made of the generation's routes.
    Equal arguments give equal registrations. Source: docs/apps.md, "Registrations".
    """
    telemetry = Telemetry(origin=use.origin, count_list=False)

    def register(server: str, more: Mapping[str, Json], metadata: RuntimeMetadata) -> Registration:
        config: dict[str, Json] = {
            "url": generation.url(server),
            "environment_id": "local",
            "enabled": True,
            "required": False,
            "supports_parallel_tool_calls": False,
        }
        bearer = generation.bearer(server)
        return Registration(
            server,
            {**config, **more},
            bearer,
            generation.owner,
            metadata,
            manifest=manifests.get(server),
        )

    shared = RuntimeMetadata(telemetry=telemetry, serves_skills=True)
    resources = register(RESOURCES, {"enabled_tools": []}, shared)
    return [resources] + [
        register(
            route.server,
            _filters(route, use.policy),
            RuntimeMetadata(
                telemetry=telemetry,
                plugin_display_names=_plugin_names(use.plugin_names.get(route.connector.id, ())),
                client_meta_names=(RESOURCES,),
                trusts_effective_input=True,
                trusts_approval_context=True,
                sandbox_state_source="primary",
                approvals_reviewer=use.policy.reviewer(route.connector),
                tools=presented[route.server],
            ),
        )
        for route in sorted(generation.routes, key=attrgetter("server"))
    ]


def _filters(route: Route, policy: AppsPolicy) -> Mapping[str, Json]:
    connector = route.connector
    enabled = {name: tool for name, tool in route.tools.items() if policy.enabled(connector, tool)}
    of_app = policy.app_mode(connector)
    modes = {name: policy.mode(connector, tool) for name, tool in enabled.items()}
    return {
        "enabled_tools": sorted(enabled),
        "default_tools_approval_mode": of_app,
        "tools": {name: {"approval_mode": mode} for name, mode in modes.items() if mode != of_app},
        "omit_tools_from": list(policy.omitted_surfaces(connector)),
    }


def _plugin_names(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({name.strip() for name in names} - {""})[:MAX_PLUGIN_NAMES])


def _tool_choice(app: AppChoice, connector: Connector, tool: AppTool) -> ToolChoice:
    if not app.tools:
        return _NO_TOOL
    by_name = app.tools.get(tool.name)
    if by_name is not None:
        return by_name
    return app.tools.get(stripped_title(connector, tool) or "", _NO_TOOL)


def _hint(tool: AppTool, name: str) -> bool:
    """Whether a tool may do that: unless it says that it does not."""
    hints = tool.definition.get("annotations")
    return not isinstance(hints, dict) or hints.get(name) is not False


def _first(*values: bool | None) -> bool | None:
    return next((value for value in values if value is not None), None)
