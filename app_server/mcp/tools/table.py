"""The tools of all servers of a thread that its model may call, and how they are declared to it.

Source: docs/mcp.md, "Names", "Tools and the model".
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from operator import attrgetter
from weakref import WeakKeyDictionary

import anyio.to_thread

from app_server.extensions.contract.registration import ToolMetadata
from app_server.mcp.bounds import MAX_FOUND_BYTES, json_bytes, left_out
from app_server.mcp.catalog.config import ServerConfig
from app_server.mcp.tools.listing import Listing, described, is_for_model, tool_parameters
from app_server.mcp.tools.naming import RawName, VisibleName, assign_names
from protocol.model import JsonObject

SMALL_TABLE = 64
"""Tools that are sorted and named on the event loop; more of them in a worker thread."""
MAX_DESCRIPTION_BYTES = 4096

_FUNCTION: JsonObject = {
    "type": "function",
    "name": "",
    "description": "",
    "strict": False,
    "parameters": {},
}
_FUNCTION_BYTES = json_bytes(_FUNCTION) - len('""{}') + len(",")
"""Of a function and a comma behind it, without what its name, description and parameters take."""


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
    size: int | None = None
    """Bytes of description and parameters as JSON; None: as they are measured."""

    def declaration(self) -> JsonObject:
        """Return the function that a model request has for it."""
        return {
            **_FUNCTION,
            "name": self.visible.name,
            "description": "\n\n".join(text for text in self._texts if text),
            "parameters": self._shown_parameters,
        }

    @property
    def _texts(self) -> tuple[str, str]:
        return described(self.definition), _membership(self.config.metadata.plugin_display_names)

    @property
    def _shown_parameters(self) -> JsonObject:
        if self.parameters is not None:
            return self.parameters
        return tool_parameters(self.definition.get("inputSchema"))

    def declared_bytes(self) -> int:
        """Return the bytes of `declaration` as JSON, and of a comma behind it."""
        description, membership = self._texts
        size = self.size
        if size is None:
            size = json_bytes(description) + json_bytes(self._shown_parameters)
        if membership:
            size += json_bytes(f"\n\n{membership}" if description else membership) - len('""')
        return _FUNCTION_BYTES + len(self.visible.name) + size

    @property
    def metadata(self) -> ToolMetadata:
        """The metadata that the server's registration gave for the tool."""
        return self.config.metadata.of_tool(self.raw.tool)


@dataclass(frozen=True, eq=False)
class McpToolTable:
    """All tools of a set that the model may call, at one moment; immutable."""

    tools: Sequence[Tool]
    """Sorted by raw name."""
    instructions: dict[str, str]
    """Namespace to the server's instructions, for servers that give any."""
    left_out: frozenset[str] = frozenset()
    """Raw names of servers whose tools do not fit into a model request beside the others'."""

    @cached_property
    def raw_names(self) -> frozenset[tuple[str, str]]:
        """Raw names of servers and tools."""
        return frozenset(tool.raw for tool in self.tools)

    @cached_property
    def _by_name(self) -> dict[VisibleName, Tool]:
        return {tool.visible: tool for tool in self.tools}

    def description_of(self, namespace: str) -> str:
        """Return what a model is shown of a namespace: at most MAX_DESCRIPTION_BYTES of UTF-8."""
        text = self.instructions.get(namespace) or f"Tools in the {namespace} namespace."
        encoded = text.encode()
        if len(encoded) <= MAX_DESCRIPTION_BYTES:
            return text
        return encoded[:MAX_DESCRIPTION_BYTES].decode(errors="ignore") + "… [truncated]"

    def namespace(self, name: str, functions: list[JsonObject]) -> JsonObject:
        """Return the entry of a model request with functions of one namespace."""
        described = self.description_of(name)
        return {"type": "namespace", "name": name, "description": described, "tools": functions}

    def declared_bytes(self) -> Mapping[str, int]:
        """Return the bytes of a model request that each server's tools take, by its raw name."""
        sizes = Counter[str]()
        for tool in self.tools:
            if tool.raw.server not in sizes:
                # The comma behind its last function is that behind the entry.
                entry = self.namespace(tool.visible.namespace, [])
                sizes[tool.raw.server] = json_bytes(entry)
            sizes[tool.raw.server] += tool.declared_bytes()
        return sizes

    def make_ready(self) -> None:
        """Have everything at hand that is asked of the table, before it is asked."""
        assert self.raw_names is not None
        assert self._by_name is not None

    def find(self, name: VisibleName) -> Tool | None:
        """Find a tool by the name the model uses."""
        return self._by_name.get(name)


NO_TOOLS = McpToolTable((), {})


class McpToolTables:
    """Makes tables from what servers have listed, and keeps the last one while that is the same."""

    def __init__(self) -> None:
        self.last = NO_TOOLS
        """The last table made; the servers may list other tools by now."""
        self._made_from: object = None

    def make(self, surface: str, listed: Sequence[tuple[ServerConfig, Listing]]) -> McpToolTable:
        """Make a table on the event loop, whatever its size."""
        key = surface, listed
        if self._made_from != key:
            self._made_from, self.last = key, _table_of(*key) if listed else NO_TOOLS
        return self.last

    async def prepare(
        self, surface: str, listed: Sequence[tuple[ServerConfig, Listing]]
    ) -> McpToolTable:
        """Return the same as `make`, made in a worker thread if there are many tools."""
        key = surface, listed
        is_small = sum(len(listing.tools) for _, listing in listed) <= SMALL_TABLE
        if is_small or self._made_from == key:
            return self.make(*key)
        table = await anyio.to_thread.run_sync(_prepared_table_of, *key)
        self._made_from, self.last = key, table
        return table


def _prepared_table_of(
    surface: str, listed: Sequence[tuple[ServerConfig, Listing]]
) -> McpToolTable:
    table = _table_of(surface, listed)
    table.make_ready()
    return table


def _table_of(surface: str, listed: Sequence[tuple[ServerConfig, Listing]]) -> McpToolTable:
    table = _named(listed)
    if surface != "direct" or not (too_large := left_out(table.declared_bytes())):
        return table
    fitting = [(config, listing) for config, listing in listed if config.name not in too_large]
    # Names do not get longer where there are fewer of them.
    return replace(_named(fitting), left_out=too_large)


def _named(listed: Sequence[tuple[ServerConfig, Listing]]) -> McpToolTable:
    shown = [
        (RawName(config.name, name), config, listing)
        for config, listing in sorted(listed, key=_server)
        for name in config.allowed_of(sorted(listing.tools))
        if is_for_model(listing.tools[name])
    ]
    names = assign_names(raw for raw, _, _ in shown)
    tools = [
        Tool(
            raw,
            names[raw],
            listing.tools[raw.tool],
            config,
            listing.parameters.get(raw.tool),
            listing.sizes.get(raw.tool),
        )
        for raw, config, listing in shown
    ]
    instructions = {
        names[raw].namespace: listing.instructions
        for raw, _, listing in shown
        if listing.instructions
    }
    return McpToolTable(tools, instructions)


def _server(listed: tuple[ServerConfig, Listing]) -> str:
    return listed[0].name


def _membership(plugins: Sequence[str]) -> str:
    if not plugins:
        return ""
    names = [f"`{name}`" for name in plugins]
    return f"Part of the plugin{'s' if len(names) > 1 else ''} {', '.join(names)}."


NOTE = "There are more tools in these namespaces; find them with tool_search."

_MARKS: JsonObject = {"defer_loading": True}
_MARK_BYTES = json_bytes(_MARKS) - len("{}") + len(",")

_DECLARED: WeakKeyDictionary[McpToolTable, list[JsonObject]] = WeakKeyDictionary()
"""Declarations by table, kept while it is in use: each model request of a turn needs them."""


def declare(table: McpToolTable) -> list[JsonObject]:
    """Declare every tool, in the order of raw names; not to be changed.

    For thousands of tools, the first time takes some ten ms: for worker threads.
    """
    made = _DECLARED.get(table)
    if made is None:
        made = _DECLARED[table] = _namespaces(table, table.tools, {})
    return made


def declared_functions(table: McpToolTable) -> list[JsonObject]:
    """Return the functions that `declare` has ready, none unless it was asked."""
    namespaces = _DECLARED.get(table, ())
    return [function for namespace in namespaces for function in namespace["tools"]]


def is_declared(table: McpToolTable) -> bool:
    """Whether `declare` has its answer ready."""
    return table in _DECLARED


def declare_found(table: McpToolTable, found: Sequence[Tool]) -> list[JsonObject]:
    """Declare what a search found, in the order of raw names, for a model that defers tools.

    `found` is best first; what MAX_FOUND_BYTES have no room for is passed over.
    """
    left = MAX_FOUND_BYTES
    fitting: list[Tool] = []
    namespaces: set[str] = set()
    for tool in found:
        size = tool.declared_bytes() + _MARK_BYTES
        if tool.visible.namespace not in namespaces:
            size += json_bytes(table.namespace(tool.visible.namespace, []))
        if size <= left:
            namespaces.add(tool.visible.namespace)
            left -= size
            fitting.append(tool)
    ordered = sorted(fitting, key=attrgetter("raw"))
    return _namespaces(table, ordered, _MARKS)


def deferred_lines(table: McpToolTable) -> list[str]:
    """Describe the namespaces of a table, a line each."""
    names = dict.fromkeys(tool.visible.namespace for tool in table.tools)
    return [f"- {name}: {table.description_of(name).splitlines()[0]}" for name in names]


def deferred_note(lines: Sequence[str]) -> str:
    """Declare which namespaces there are to search in; `lines` describe one each."""
    return "\n".join([NOTE, "<tools>", *lines, "</tools>"])


def _namespaces(table: McpToolTable, tools: Sequence[Tool], marks: JsonObject) -> list[JsonObject]:
    return [
        table.namespace(namespace, [tool.declaration() | marks for tool in members])
        for namespace, members in groupby(tools, key=attrgetter("visible.namespace"))
    ]
