"""MCP servers of apps as clients see them: one server, whose tools have their upstream names.

Only what answers clients directly does that; turns, items and notifications have the real names.
Nothing of it happens without a server that apps registered.
Source: docs/apps.md, "One server".
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from app_server.config.values import Config
from app_server.mcp.catalog.config import ServerConfig
from app_server.mcp.tools.naming import RawName
from protocol.integrations.mcp import McpResourceReadParams, McpServerStatus
from protocol.jsonrpc.errors import invalid_params, invalid_request

RESOURCES = "codex_apps"
"""The server that stands for all of them."""

PREFIX = f"{RESOURCES}__"
"""Of the servers of single apps."""


class AppServers(Protocol):
    """Port that registers MCP servers of apps, for requests to MCP servers."""

    async def prepare_mcp_servers(self, config: Mapping[str, Any]) -> None:
        """See to it that servers of apps are registered, if there are any for these settings.

        May wait, for as long as the first list of tools takes. A failure is only logged.
        """


def is_of_apps(server: str) -> bool:
    """Whether a server of this name would be one of apps."""
    return server == RESOURCES or server.startswith(PREFIX)


@dataclass(frozen=True, slots=True)
class AppViews:
    """The servers of one thread, or of one question, as clients see them."""

    configs: Mapping[str, ServerConfig]
    folds: bool
    """Whether the servers of apps are shown as one."""

    @classmethod
    def read(cls, configs: Mapping[str, ServerConfig], config: Config) -> "AppViews":
        """Look at servers under the settings in force.

        Raises:
            ConfigError: the settings make no sense.
        """
        table = config.view().at("apps_service")
        view = table.choice("status_view", ("aggregate", "split"))
        resources = configs.get(RESOURCES)
        registered = resources is not None and resources.is_registered
        return cls(configs, registered and view != "split")

    def groups(self) -> dict[str, list[str]]:
        """Return what entries there are, sorted, and the servers behind each."""
        groups: dict[str, list[str]] = {}
        for name in sorted(self.configs):
            shown = RESOURCES if self.folds and name in self._apps() else name
            groups.setdefault(shown, []).append(name)
        return groups

    def folded(self, name: str, statuses: Sequence[McpServerStatus]) -> list[McpServerStatus]:
        """Make one entry of those of a group; none if its server has gone meanwhile."""
        own = [status for status in statuses if status.name == name]
        connectors = {status.name: status for status in statuses if status.name != name}
        if not own or not connectors:
            return own
        errors = (
            f"{one.name}: {one.tools_error}" for one in connectors.values() if one.tools_error
        )
        tools = {
            shown: one.tools[raw.tool].model_copy(update={"name": self._upstream(raw)})
            for shown, raw in self._shown_tools()
            if (one := connectors.get(raw.server)) is not None and raw.tool in one.tools
        }
        # It tells why there are no tools; where there are some, nobody misses the list.
        error = None if tools else own[0].tools_error or next(errors, None)
        update = {"tools": tools, "tools_error": error}
        return [own[0].model_copy(update=update)]

    def tool(self, server: str, tool: str) -> RawName:
        """Return the tool that a client means."""
        if self.folds and server == RESOURCES:
            return dict(self._shown_tools()).get(tool, RawName(server, tool))
        return RawName(server, tool)

    def reader(self, params: McpResourceReadParams) -> str:
        """Return the server that reads a resource: that of the app, if one is named.

        Raises:
            RpcError: two apps are named, or one that has no server.
        """
        named = [params.connector_id, params.target and params.target.connector_id]
        ids = {id_ for id_ in named if id_ is not None}
        if params.server != RESOURCES or not ids:
            return params.server
        if len(ids) > 1:
            rule = "must be `connectorId`"
            raise invalid_params(
                f"Invalid params: `target.connectorId` {rule}",
                field="target.connectorId",
                rule=rule,
            )
        (connector_id,) = ids
        for name, of_server in self._apps().items():
            if of_server == connector_id:
                return name
        raise invalid_request(
            f"app not found: {connector_id}", "appNotFound", connectorId=connector_id
        )

    def _apps(self) -> dict[str, str | None]:
        """Return the registered servers of apps, with their connectors."""
        return {
            name: _connector_of(config)
            for name, config in self.configs.items()
            if config.is_registered and is_of_apps(name)
        }

    def _shown_tools(self) -> Iterator[tuple[str, RawName]]:
        """Give every tool of apps the name that clients see: its own, if no other has it."""
        tools = [
            RawName(name, tool)
            for name in self._apps()
            for tool, metadata in self.configs[name].metadata.tools.items()
            if metadata.approval_identity is not None
        ]
        count = Counter(self._upstream(raw) for raw in tools)
        for raw in tools:
            upstream = self._upstream(raw)
            yield (upstream if count[upstream] == 1 else f"{raw.server}/{raw.tool}"), raw

    def _upstream(self, raw: RawName) -> str:
        identity = self.configs[raw.server].metadata.of_tool(raw.tool).approval_identity
        return raw.tool if identity is None else identity.tool


def _connector_of(config: ServerConfig) -> str | None:
    identities = (tool.approval_identity for tool in config.metadata.tools.values())
    return next((identity.source for identity in identities if identity is not None), None)
