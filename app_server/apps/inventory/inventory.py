"""The endpoint's flat list of tools, validated and sorted by connector. No I/O.

Source: docs/apps.md, "Inventory".
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from app_server.apps.inventory import annotations
from app_server.apps.inventory.annotations import Origin
from protocol.model import JsonObject

MAX_TOOLS = 4096
"""Of one inventory, before any of them is dropped."""


class InconsistentInventory(Exception):
    """Invalid inventory: one connector has two names."""


@dataclass(frozen=True, slots=True)
class AppTool:
    """One tool of a connector."""

    name: str
    """As upstream has it, spaces around it included."""
    definition: JsonObject = field(repr=False)
    """The tool as it may be listed, under its upstream name and title."""
    synthetic: bool
    """Whether it exists only to let the user link the connector."""

    @property
    def envelope(self) -> JsonObject:
        """The endpoint's own data about the tool, sent back in `_meta` of each call."""
        return annotations.envelope_of(self._meta)

    @property
    def link_id(self) -> str | None:
        """The user's link to the app."""
        return annotations.text_at(self._meta, "link_id")

    @property
    def action_name(self) -> str | None:
        """The tool's name within the app."""
        return annotations.action_name_of(self.envelope)

    @property
    def resources(self) -> tuple[str, ...]:
        """URIs that the connector's route may read for it, that of its user interface first."""
        return annotations.resources_of(self._meta)

    @property
    def file_params(self) -> tuple[str, ...]:
        """Arguments that carry files."""
        return annotations.file_params_of(self._meta)

    @property
    def visible_to_model(self) -> bool:
        """Whether the model may see it."""
        return annotations.is_visible_to_model(self._meta)

    @property
    def _meta(self) -> JsonObject:
        return annotations.meta_of(self.definition)

    @property
    def title(self) -> str | None:
        """The title, exact; None when there is none."""
        title = self.definition.get("title")
        return title if isinstance(title, str) and title.strip() else None


@dataclass(frozen=True, slots=True)
class Connector:
    """One app and its tools, in the order of the endpoint, no name twice."""

    id: str
    name: str
    description: str | None
    tools: tuple[AppTool, ...]

    @property
    def has_real_tool(self) -> bool:
        """Whether it has a tool besides those that link it."""
        return any(not tool.synthetic for tool in self.tools)


@dataclass(frozen=True, slots=True)
class Inventory:
    """The connectors and tools that an account can use."""

    connectors: tuple[Connector, ...]
    """Sorted by id."""
    raw_tools: tuple[JsonObject, ...] = field(repr=False)
    """As they came, for the cache."""

    @property
    def installed(self) -> tuple[Connector, ...]:
        """The connectors with a real tool."""
        return tuple(connector for connector in self.connectors if connector.has_real_tool)


def build_inventory(raw_tools: Sequence[JsonObject], before: Sequence[Connector] = ()) -> Inventory:
    """Validate the tools of all pages, in the endpoint's order, and sort them by connector.

    Tools without a name, and those that do not say to whom they belong, are dropped; of two with
    one name in one connector the first is kept. A connector that is equal to one of `before` is
    that very object: what was made of it needs not be made again.

    Raises:
        InconsistentInventory: a connector goes by two names.
    Source: docs/apps.md, "Inventory".
    """
    origins: dict[str, Origin] = {}
    tools: dict[str, dict[str, AppTool]] = {}
    for raw in raw_tools:
        meta = annotations.meta_of(raw)
        origin = annotations.origin_of(meta)
        name = raw.get("name")
        if origin is None or not isinstance(name, str) or not name.strip():
            continue
        known = origins.setdefault(origin.id, origin)
        if known.name != origin.name:
            raise InconsistentInventory(f"connector {origin.id[:100]!r} goes by two names")
        if known.description is None:
            origins[origin.id] = origin
        of_connector = tools.setdefault(origin.id, {})
        if name not in of_connector:
            definition = annotations.with_reviewer_context(raw)
            of_connector[name] = AppTool(name, definition, annotations.is_synthetic(meta))
    old = {connector.id: connector for connector in before}
    connectors = []
    for id_ in sorted(origins):
        origin = origins[id_]
        made = Connector(id_, origin.name, origin.description, tuple(tools[id_].values()))
        connectors.append(old[id_] if old.get(id_) == made else made)
    return Inventory(tuple(connectors), tuple(raw_tools))
