"""The tools of all servers of a thread that its model may call, under the names that it uses.

Source: docs/mcp.md, "Names".
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import anyio.to_thread

from app_server.extension.metadata import ToolMetadata
from app_server.mcp.bounds import left_out
from app_server.mcp.catalog.config import ServerConfig
from app_server.mcp.tools.listing import Listing, is_for_model
from app_server.mcp.tools.naming import RawName, VisibleName, assign_names
from protocol.model import JsonObject

SMALL_TABLE = 64
"""Tools that are sorted and named on the event loop; more of them in a worker thread."""


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool that can be called."""

    raw: RawName
    visible: VisibleName
    definition: JsonObject
    """As the server listed it."""
    config: ServerConfig
    parameters: JsonObject | None = None
    """The input schema as models are shown it; None: as the definition makes it."""

    @property
    def metadata(self) -> ToolMetadata:
        """What whoever registered the server says of the tool."""
        return self.config.metadata.of_tool(self.raw.tool)


@dataclass(frozen=True, eq=False)
class ToolTable:
    """All tools of a set that the model may call, at one moment. Nobody changes it."""

    tools: Sequence[Tool]
    """Sorted by raw name."""
    instructions: dict[str, str]
    """Namespace to the server's instructions, for servers that give any."""
    left_out: frozenset[str] = frozenset()
    """Raw names of servers whose tools do not fit into a model request beside the others'."""

    @cached_property
    def raw_names(self) -> frozenset[tuple[str, str]]:
        """Raw names of servers and tools."""
        return frozenset((tool.raw.server, tool.raw.tool) for tool in self.tools)

    @cached_property
    def _by_name(self) -> dict[VisibleName, Tool]:
        return {tool.visible: tool for tool in self.tools}

    def make_ready(self) -> None:
        """Have everything at hand that is asked of the table, before it is asked."""
        assert self.raw_names is not None
        assert self._by_name is not None

    def find(self, name: VisibleName) -> Tool | None:
        """Find a tool by the name the model uses."""
        return self._by_name.get(name)


class ToolTables:
    """Makes tables from what servers have listed, and keeps the last one while that is the same."""

    def __init__(self) -> None:
        self._made: tuple[object, ToolTable] | None = None

    @property
    def last(self) -> ToolTable | None:
        """What was made last; what there is now may be more, or less."""
        return None if self._made is None else self._made[1]

    def make(self, surface: str, listed: Sequence[tuple[ServerConfig, Listing]]) -> ToolTable:
        """Make a table on the event loop, whatever its size."""
        key = surface, listed
        if self._made is None or self._made[0] != key:
            self._made = key, _table_of(*key)
        return self._made[1]

    async def prepare(
        self, surface: str, listed: Sequence[tuple[ServerConfig, Listing]]
    ) -> ToolTable:
        """Return the same as `make`, made in a worker thread if there are many tools."""
        key = surface, listed
        is_small = sum(len(listing.tools) for _, listing in listed) <= SMALL_TABLE
        if is_small or (self._made is not None and self._made[0] == key):
            return self.make(*key)
        table = await anyio.to_thread.run_sync(_prepared_table_of, *key)
        self._made = key, table
        return table


def _prepared_table_of(surface: str, listed: Sequence[tuple[ServerConfig, Listing]]) -> ToolTable:
    table = _table_of(surface, listed)
    table.make_ready()
    return table


def _table_of(surface: str, listed: Sequence[tuple[ServerConfig, Listing]]) -> ToolTable:
    shown = {
        RawName(config.name, name): (config, listing, definition)
        for config, listing in listed
        for name, definition in listing.tools.items()
        if config.allows(name) and is_for_model(definition)
    }
    too_large: frozenset[str] = frozenset()
    if surface == "direct":
        sizes = Counter[str]()
        for raw, (_, listing, _) in shown.items():
            sizes[raw.server] += listing.sizes.get(raw.tool, 0)
        too_large = left_out(sizes)
        shown = {raw: one for raw, one in shown.items() if raw.server not in too_large}
    names = assign_names(shown)
    tools = [
        Tool(raw, names[raw], definition, config, listing.parameters.get(raw.tool))
        for raw, (config, listing, definition) in sorted(
            shown.items(), key=lambda entry: (entry[0].server, entry[0].tool)
        )
    ]
    instructions = {
        names[raw].namespace: listing.instructions
        for raw, (_, listing, _) in shown.items()
        if listing.instructions
    }
    return ToolTable(tools, instructions, too_large)
